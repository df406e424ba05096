// Command linger does nothing until it gets SIGTERM, and ends well after as long as
// its argument says, such as 3s. Without an argument it ends at once.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	var rest time.Duration
	if len(os.Args) > 1 {
		var err error
		if rest, err = time.ParseDuration(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "linger: give how long to linger, such as 3s:", err)
			os.Exit(2)
		}
	}
	<-asked
	<-time.After(rest)
}
