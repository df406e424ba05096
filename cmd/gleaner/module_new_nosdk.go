//go:build !gosdk

package main

// goSDK is empty: the root module does not require the SDK's yet.
func goSDK() []sdkModule { return nil }
