package fuel

// Limits bound the accepted modules: the cost of reading, compiling, storing and
// instantiating a module grows with these numbers, and is not charged as fuel. Zero
// fields mean the default.
type Limits struct {
	ModuleSize    int // bytes; default 64 MiB
	FunctionSize  int // bytes of one function's code; default 1 MiB
	Functions     int // with those imported; default 200,000
	Entries       int // of each other list: types, imports, exports, globals, element segments; default 10,000
	DataSegments  int // default 100,000, which is the maximum of Go's linker
	Parameters    int // of one function or block, and as many results; default 1,000
	TypeValues    int // parameters and results of all types together; default 50,000
	Names         int // bytes of the names of imports and exports; functions whose names have more have none; default 4 MiB
	Locals        int // of one function; default 50,000
	Loops         int // of one function; default 1,000
	Branches      int // of one function: blocks, and targets of branches; default 10,000
	Joins         int // of one function: branches times locals; default 1,000,000
	Values        int // of one function: parameters and results of its blocks, branches and calls; default 1,000,000
	Tables        int // default 8
	TableElements int // of all tables together, of one when it has grown, and of all element segments; default 200,000
}

func (l Limits) withDefaults() Limits {
	for limit, otherwise := range map[*int]int{
		&l.ModuleSize:    64 << 20,
		&l.FunctionSize:  1 << 20,
		&l.Functions:     200_000,
		&l.Entries:       10_000,
		&l.DataSegments:  100_000,
		&l.Parameters:    1_000,
		&l.TypeValues:    50_000,
		&l.Names:         4 << 20,
		&l.Locals:        50_000,
		&l.Loops:         1_000,
		&l.Branches:      10_000,
		&l.Joins:         1_000_000,
		&l.Values:        1_000_000,
		&l.Tables:        8,
		&l.TableElements: 200_000,
	} {
		if *limit == 0 {
			*limit = otherwise
		}
	}
	return l
}
