package source

// Waiting is how many wait for fetches.
func Waiting(f *Fetcher) int {
	f.flights.mu.Lock()
	defer f.flights.mu.Unlock()
	n := 0
	for _, one := range f.flights.inFlight {
		n += one.waiters
	}
	return n
}

// Unpack is what is done with the layers of an image.
func Unpack(language Language, data []byte, limits Limits) ([]File, error) {
	return unpackImage(language, []layer{{data: data}}, limits.withDefaults())
}

// Parse is what is done with a manifest.
func Parse(language Language, data []byte) error {
	m, err := parseManifest(data, defaults)
	if err != nil {
		return err
	}
	if m.isIndex() {
		_, err = m.wasmImage()
		return err
	}
	_, _, err = m.layers(language, defaults)
	return err
}
