package run

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	eventrecord "k8s.io/client-go/tools/record"

	"github.com/gleaner-dev/gleaner/operator/escape"
)

// printable escapes the messages of events, so that each is one printable line: modules and
// servers contribute to them, and some clients print them unescaped.
type printable struct{ to eventrecord.EventRecorder }

// Event implements record.EventRecorder.
func (p printable) Event(about runtime.Object, kind, reason, message string) {
	p.to.Event(about, kind, escape.Text(reason), escape.Text(message))
}

// Eventf implements record.EventRecorder.
func (p printable) Eventf(about runtime.Object, kind, reason, format string, args ...any) {
	p.Event(about, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (p printable) AnnotatedEventf(about runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	p.to.AnnotatedEventf(about, annotations, kind, escape.Text(reason), "%s", escape.Text(fmt.Sprintf(format, args...)))
}
