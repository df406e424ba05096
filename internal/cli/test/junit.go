package test

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// junitReporter writes JUnit XML.
type junitReporter struct{ to io.Writer }

func (junitReporter) suite(Suite) error { return nil }

// JUnitSuites is the root element of JUnit XML.
type JUnitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []JUnitSuite `xml:"testsuite"`
}

// JUnitSuite is a test suite of JUnit XML.
type JUnitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"` // seconds
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	File    string     `xml:"file,attr,omitempty"`
	Line    int        `xml:"line,attr,omitempty"`
	Failure *junitText `xml:"failure,omitempty"`
	Error   *junitText `xml:"error,omitempty"`
	Skipped *struct{}  `xml:"skipped,omitempty"`
	Output  string     `xml:"system-out,omitempty"`
}

type junitText struct {
	Message string `xml:"message,attr"` // the first line
	Text    string `xml:",chardata"`
}

func (t junitReporter) end(all []Suite) error {
	var document JUnitSuites
	for _, s := range all {
		suite := junitOf(s)
		document.Suites = append(document.Suites, suite)
		document.Tests += suite.Tests
		document.Failures += suite.Failures
		document.Errors += suite.Errors
	}
	text, err := xml.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	_, err = printer.Fprintf(t.to, "%s%s\n", xml.Header, text)
	return err
}

func junitOf(s Suite) JUnitSuite {
	suite := JUnitSuite{Name: s.Name, Time: fmt.Sprintf("%.3f", s.Seconds)}
	for _, r := range s.Results {
		c := junitCase{Class: s.Name, Name: r.Name, File: r.File, Line: r.Line, Output: r.Output}
		switch r.Outcome {
		case passed:
		case skipped:
			suite.Skipped++
			c.Skipped = &struct{}{}
		default:
			suite.Failures++
			c.Failure = textOf(r.Message)
		}
		suite.Cases = append(suite.Cases, c)
	}
	if s.Broken != "" {
		suite.Errors++
		suite.Cases = append(suite.Cases, junitCase{Class: s.Name, Name: s.Name, File: s.Name, Error: textOf(s.Broken)})
	}
	suite.Tests = len(suite.Cases)
	return suite
}

func textOf(message string) *junitText {
	first, _, _ := strings.Cut(message, "\n")
	return &junitText{Message: first, Text: message}
}
