// Command server is a DNS provider's REST API on loopback, as small as one can
// be, to try the example with: GET, PUT and DELETE of
// /zones/ZONE/records/TYPE/NAME, with a bearer token. It serves no DNS.
package main

import (
	"crypto/subtle"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

func main() {
	address := flag.String("address", "127.0.0.1:8053", "where to listen")
	token := flag.String("token", "example", "what clients have to show")
	child := flag.Bool("child", false, "end with the standard input")
	flag.Parse()
	if *child {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	if err := serve(*address, *token); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func serve(address, token string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "http://%s\n", listener.Addr())
	server := &http.Server{Handler: guarded(token, records()), ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}

// guarded lets those in who show the token.
func guarded(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := r.Header.Get("Authorization")
		if subtle.ConstantTimeCompare([]byte(shown), []byte("Bearer "+token)) == 0 {
			http.Error(w, "show a token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// records keeps records while the process runs.
func records() http.Handler {
	var mu sync.Mutex // covers kept
	kept := map[string]string{}
	mux := http.NewServeMux()
	mux.HandleFunc("/zones/{zone}/records/{type}/{name}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		value, found := kept[r.URL.Path]
		switch {
		case r.Method == http.MethodPut:
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			kept[r.URL.Path] = string(body)
			w.WriteHeader(http.StatusNoContent)
		case !found:
			http.Error(w, "there is no such record", http.StatusNotFound)
		case r.Method == http.MethodGet:
			fmt.Fprint(w, value)
		case r.Method == http.MethodDelete:
			delete(kept, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		default:
			http.Error(w, "use GET, PUT or DELETE", http.StatusMethodNotAllowed)
		}
	})
	return mux
}
