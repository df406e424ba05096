package main

import (
	"github.com/gleaner-dev/gleaner/hostabi"
	sdk "github.com/gleaner-dev/gleaner/sdk/go"
)

// goSDK is what a module in Go needs, laid out as it is in this project, since
// the SDK refers to hostabi by that.
func goSDK() []sdkModule {
	return []sdkModule{{"hostabi", hostabi.Sources}, {"sdk/go", sdk.Sources}}
}
