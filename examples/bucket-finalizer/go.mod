module github.com/gleaner-dev/gleaner/examples/bucket-finalizer

go 1.23

require (
	github.com/gleaner-dev/gleaner/hostabi v0.0.0 // indirect
	github.com/gleaner-dev/gleaner/sdk/go v0.0.0
)

replace (
	github.com/gleaner-dev/gleaner/hostabi => ../../hostabi
	github.com/gleaner-dev/gleaner/sdk/go => ../../sdk/go
)
