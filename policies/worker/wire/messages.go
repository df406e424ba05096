package wire

// File is a file of a module's source.
type File struct {
	Name string
	Text []byte
}

// Compile asks for a module to be compiled from its source and checked, and to be
// forgotten again. The reply has the code to load, and what the module exports.
type Compile struct {
	Engine string // Rego or Wasm, as in v1alpha1.Engine
	Files  []File
}

// Load asks for compiled code to be loaded under a number that the operator chooses.
type Load struct {
	Module uint32
	Engine string
	Digest string
	Hooks  []string // of Rego, by entry point
	Code   []byte
}

// Start asks for an instance of a loaded module for one policy or finalizer, under a
// number that the operator chooses.
type Start struct {
	Policy, Module uint32
	Name           string
	Fuel           int64 // units for each call
	Memory         int64 // bytes of linear memory
	Timeout        int64 // nanoseconds for each call
}

// Evaluate asks a started policy for its verdict.
type Evaluate struct {
	Policy   uint32
	Hook     string
	Time     int64  // of the request, in nanoseconds since 1970; 0: none
	Document []byte // the request
}

// Outcome says how a request ended.
type Outcome uint8

// The outcomes. The zero Outcome is no success.
const (
	Failed   Outcome = iota // the host is at fault: Message says how
	Done                    // see the fields of the request's reply
	Rejected                // the module is never run: Message says why
	Faulted                 // the module did not answer as it must: FaultKind and Message say how
)

// Line is a line of a module's log.
type Line struct {
	Source string
	Level  uint32
	Text   string
}

// Reply answers a request. Fields that a request does not ask for are zero.
type Reply struct {
	Outcome   Outcome
	FaultKind string
	Message   string

	// Of Compile.
	Hooks   []string
	Imports []string
	Needs   string // how much of the object it reads, as in policies.Needs
	Size    int64  // bytes of WebAssembly
	Code    []byte

	// Of Evaluate, and of Start for initialization.
	Verdict  []byte
	Fuel     int64
	Memory   int64 // bytes of linear memory at the end
	Elapsed  int64 // nanoseconds in the guest
	Restored bool
	Log      []Line
	Dropped  int64 // bytes of the log that were not kept
}

func (*Compile) kind() Kind  { return KindCompile }
func (*Load) kind() Kind     { return KindLoad }
func (*Start) kind() Kind    { return KindStart }
func (*Evaluate) kind() Kind { return KindEvaluate }
func (*Reply) kind() Kind    { return KindReply }

func (m *Compile) encode(e *encoder) {
	e.text(m.Engine)
	e.u32(uint32(len(m.Files)))
	for _, f := range m.Files {
		e.text(f.Name)
		e.bytes(f.Text)
	}
}

func (m *Compile) decode(d *decoder) {
	m.Engine = d.text()
	for range d.count(8) {
		m.Files = append(m.Files, File{Name: d.text(), Text: d.bytes()})
	}
}

func (m *Load) encode(e *encoder) {
	e.u32(m.Module)
	e.text(m.Engine)
	e.text(m.Digest)
	e.texts(m.Hooks)
	e.bytes(m.Code)
}

func (m *Load) decode(d *decoder) {
	m.Module, m.Engine, m.Digest, m.Hooks, m.Code = d.u32(), d.text(), d.text(), d.texts(), d.bytes()
}

func (m *Start) encode(e *encoder) {
	e.u32(m.Policy)
	e.u32(m.Module)
	e.text(m.Name)
	e.i64(m.Fuel)
	e.i64(m.Memory)
	e.i64(m.Timeout)
}

func (m *Start) decode(d *decoder) {
	m.Policy, m.Module, m.Name, m.Fuel, m.Memory, m.Timeout = d.u32(), d.u32(), d.text(), d.i64(), d.i64(), d.i64()
}

func (m *Evaluate) encode(e *encoder) {
	e.u32(m.Policy)
	e.text(m.Hook)
	e.i64(m.Time)
	e.bytes(m.Document)
}

func (m *Evaluate) decode(d *decoder) {
	m.Policy, m.Hook, m.Time, m.Document = d.u32(), d.text(), d.i64(), d.bytes()
}

func (m *Reply) encode(e *encoder) {
	e.u8(uint8(m.Outcome))
	e.text(m.FaultKind)
	e.text(m.Message)
	e.texts(m.Hooks)
	e.texts(m.Imports)
	e.text(m.Needs)
	e.i64(m.Size)
	e.bytes(m.Code)
	e.bytes(m.Verdict)
	e.i64(m.Fuel)
	e.i64(m.Memory)
	e.i64(m.Elapsed)
	e.bool(m.Restored)
	e.u32(uint32(len(m.Log)))
	for _, l := range m.Log {
		e.text(l.Source)
		e.u32(l.Level)
		e.text(l.Text)
	}
	e.i64(m.Dropped)
}

func (m *Reply) decode(d *decoder) {
	m.Outcome = Outcome(d.u8())
	d.failed = d.failed || m.Outcome > Faulted
	m.FaultKind, m.Message, m.Hooks, m.Imports, m.Needs = d.text(), d.text(), d.texts(), d.texts(), d.text()
	m.Size, m.Code, m.Verdict = d.i64(), d.bytes(), d.bytes()
	m.Fuel, m.Memory, m.Elapsed, m.Restored = d.i64(), d.i64(), d.i64(), d.bool()
	for range d.count(12) {
		m.Log = append(m.Log, Line{Source: d.text(), Level: d.u32(), Text: d.text()})
	}
	m.Dropped = d.i64()
}
