package intents

import (
	"bytes"
	"fmt"
	"io"
)

// idleDataMessage begins the message that net/http logs with what a server has sent on an idle
// connection. It is the only one with data of a server.
var idleDataMessage = []byte("Unsolicited response received on idle HTTP channel")

// WithoutServerData returns an output for the standard logger that omits data of servers: they may
// send back the credentials that they have received. Options.ReuseConnections needs it.
func WithoutServerData(to io.Writer) io.Writer { return withoutServerData{to} }

type withoutServerData struct{ to io.Writer }

// Write implements io.Writer. The standard logger calls it once for each message.
func (w withoutServerData) Write(message []byte) (int, error) {
	shown := message
	if at := bytes.Index(message, idleDataMessage); at >= 0 {
		shown = fmt.Appendf(bytes.Clone(message[:at]), "%s (its content is not logged)\n", idleDataMessage)
	}
	if _, err := w.to.Write(shown); err != nil {
		return 0, fmt.Errorf("log: %w", err)
	}
	return len(message), nil
}
