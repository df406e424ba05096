package devcluster

import (
	"errors"

	"github.com/gleaner-dev/gleaner/devcluster/freeport"
)

// errPortTaken says that another process took a port between its choice and its use.
var errPortTaken = errors.New("port taken by another process")

type ports struct{ etcd, api, manager int }

func choosePorts() (chosen ports, err error) {
	for _, port := range []*int{&chosen.etcd, &chosen.api, &chosen.manager} {
		if *port, err = freeport.Get(); err != nil {
			return ports{}, err
		}
	}
	return chosen, nil
}
