module github.com/gleaner-dev/gleaner/hostabi

go 1.23
