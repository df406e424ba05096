package main

import (
	"github.com/gleaner-dev/gleaner/hostabi"
	sdk "github.com/gleaner-dev/gleaner/sdk/go"
	regosdk "github.com/gleaner-dev/gleaner/sdk/rego"
)

// goSDK is what a module in Go needs, laid out as it is in this project, since
// the SDK refers to hostabi by that.
func goSDK() []sdkModule {
	return []sdkModule{{"hostabi", hostabi.Sources}, {"sdk/go", sdk.Sources}}
}

// regoSDK is what a module in Rego imports as data.gleaner.sdk. Gleaner has it with
// it: the copy is for OPA's own tools, such as opa check, and editors.
func regoSDK() []sdkModule {
	return []sdkModule{{"rego", regosdk.Files}}
}
