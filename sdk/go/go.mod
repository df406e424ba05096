module github.com/gleaner-dev/gleaner/sdk/go

go 1.23

require github.com/gleaner-dev/gleaner/hostabi v0.0.0

replace github.com/gleaner-dev/gleaner/hostabi => ../../hostabi
