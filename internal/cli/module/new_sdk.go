package module

import (
	"github.com/gleaner-dev/gleaner/hostabi"
	sdk "github.com/gleaner-dev/gleaner/sdk/go"
	regosdk "github.com/gleaner-dev/gleaner/sdk/rego"
	rustsdk "github.com/gleaner-dev/gleaner/sdk/rust"
)

// goSDK returns the dependencies of a Go module, in the layout of this project, because the SDK
// refers to hostabi by relative path.
func goSDK() []sdkModule {
	return []sdkModule{{"hostabi", hostabi.Sources}, {"sdk/go", sdk.Sources}}
}

// regoSDK returns the library that Rego modules import as data.gleaner.sdk. It is built into
// Gleaner: the copy is for OPA's tools, such as opa check, and for editors.
func regoSDK() []sdkModule {
	return []sdkModule{{"rego", regosdk.Files}}
}

// rustSDK returns the dependency of a Rust module.
func rustSDK() []sdkModule {
	return []sdkModule{{"rust", rustsdk.Sources}}
}
