package fuel

// Instructions with special handling.
const (
	opUnreachable  = 0x00
	opNop          = 0x01
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opLoad         = 0x28 // the first of the loads and stores
	opStore        = 0x3e // the last of them
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI64LtS       = 0x53
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64ExtendU   = 0xad // i64.extend_i32_u
	opLastNumeric  = 0xc4 // i64.extend32_s, the last without immediates
	opRefNull      = 0xd0
	opRefIsNull    = 0xd1
	opRefFunc      = 0xd2
	opMisc         = 0xfc // prefix
	opVector       = 0xfd // prefix
)

// Instructions after the prefix opMisc.
const (
	miscLastTruncate = 7
	miscMemoryInit   = 8
	miscDataDrop     = 9
	miscMemoryCopy   = 10
	miscMemoryFill   = 11
	miscTableInit    = 12
	miscElemDrop     = 13
	miscTableCopy    = 14
	miscTableGrow    = 15
	miscTableSize    = 16
	miscTableFill    = 17
)

// Instructions after the prefix opVector.
const (
	vecLastMemory  = 11 // v128.store, the last of a row with a memory argument
	vecConst       = 12
	vecShuffle     = 13
	vecBitselect   = 0x52
	vecFirstLane   = 21 // i8x16.extract_lane_s
	vecLastLane    = 34 // f64x2.replace_lane
	vecFirstLaneIO = 84 // v128.load8_lane
	vecLastLaneIO  = 91 // v128.store64_lane
	vecLoad32Zero  = 92
	vecLoad64Zero  = 93
	vecLast        = 0xff
)

const emptyBlock = 0x40 // the type of a block without parameters and results

// costs are the units of instructions other than 1. They are proportional to
// measured times, and part of the deterministic behavior of modules: changing them
// changes what modules can do.
var costs = [256]uint16{
	opNop: noCost, opBlock: noCost, opLoop: noCost, opElse: noCost, opEnd: noCost,
	opCall: callCost, opCallIndirect: callCost + 3,
	opMemoryGrow: growCost, opRefFunc: 2 * growCost,
	0x6d: 8, 0x6e: 8, 0x6f: 8, 0x70: 8, // i32.div_s … i32.rem_u
	0x7f: 12, 0x80: 12, 0x81: 12, 0x82: 12, // i64.div_s … i64.rem_u
	0x91: 10, 0x95: 10, 0x9f: 15, 0xa3: 12, // f32 and f64: sqrt, div
}

// noCost marks an instruction without cost, since 0 in costs means 1.
const noCost = 0xffff

// callCost pays for the call and for a callee of at most tinyCost, which then
// need not charge anything itself.
const (
	callCost = 10
	tinyCost = 8
)

// Units that the prefixed instructions take beyond the first.
const (
	bulkCost = 20
	growCost = 200 // the engine leaves machine code for this
)

// memoryCost is the cost of a load or store, which takes less than a unit if the
// address is in the cache, and a hundred if it is not. This is not known in
// advance, so all are charged a part of it: at 4, the same modules use 19 to 42 %
// more fuel, and the maximum time of a unit is a quarter.
const memoryCost = 4

// vectorCost is what a vector instruction takes beyond the first unit: many
// have no one machine instruction.
func vectorCost(op uint32) int64 {
	switch op {
	case 0xe3, 0xe7, 0xef, 0xf3: // f32x4 and f64x2: sqrt, div
		return 15
	default:
		if op <= vecLastMemory || op >= vecFirstLaneIO && op <= vecLoad64Zero {
			return memoryCost
		}
		return 1
	}
}

func cost(op byte) int64 {
	switch c := costs[op]; c {
	case 0:
		if op >= opLoad && op <= opStore {
			return memoryCost
		}
		return 1
	case noCost:
		return 0
	default:
		return int64(c)
	}
}

// unsupportedFeature returns the unsupported feature of an instruction or type.
func unsupportedFeature(op byte) string {
	switch {
	case op == 0x12 || op == 0x13:
		return "tail calls"
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return "exceptions"
	case op == 0x14, op == 0x15, op >= 0xd3 && op <= 0xd6:
		return "typed function references"
	case op == 0xfb:
		return "garbage-collected types"
	case op == 0xfe:
		return "threads"
	default:
		return ""
	}
}
