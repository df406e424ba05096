package devcluster

import (
	"fmt"
	"slices"
	"strings"
)

const (
	loopback     = "127.0.0.1"
	serviceRange = "10.96.0.0/16"
)

func (c *Cluster) etcdCommand() command {
	url := fmt.Sprintf("https://%s:%d", loopback, c.ports.etcd)
	flags := []string{
		"--name=default",
		"--data-dir=" + c.files.data(),
		"--listen-client-urls=" + url,
		"--advertise-client-urls=" + url,
		"--listen-peer-urls=http://" + loopback + ":0", // has no peers
		"--cert-file=" + c.files.cert(servingName),
		"--key-file=" + c.files.key(servingName),
		"--trusted-ca-file=" + c.files.cert(caName),
		"--client-cert-auth=true",
		"--unsafe-no-fsync=true", // the data is worth nothing after a crash of the machine
		"--log-level=warn",
	}
	return c.command(Etcd, c.bin.Etcd, flags, c.opts.EtcdFlags)
}

func (c *Cluster) apiServerCommand() command {
	f := c.files
	flags := []string{
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		fmt.Sprintf("--secure-port=%d", c.ports.api),
		fmt.Sprintf("--etcd-servers=https://%s:%d", loopback, c.ports.etcd),
		"--etcd-cafile=" + f.cert(caName),
		"--etcd-certfile=" + f.cert(etcdClientName),
		"--etcd-keyfile=" + f.key(etcdClientName),
		"--tls-cert-file=" + f.cert(servingName),
		"--tls-private-key-file=" + f.key(servingName),
		"--client-ca-file=" + f.cert(caName),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=" + serviceRange,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + f.cert(serviceAccountName),
		"--service-account-signing-key-file=" + f.key(serviceAccountName),
		"--requestheader-client-ca-file=" + f.cert(caName),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + f.cert(frontProxyName),
		"--proxy-client-key-file=" + f.key(frontProxyName),
		"--endpoint-reconciler-type=none", // endpoints on loopback are invalid
		// Or a pod would be refused until its namespace has a service account,
		// and forever without the controller that makes them. Pods here ask the API nothing.
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
	}
	if plugins := c.opts.AdmissionPlugins; len(plugins) > 0 {
		flags = append(flags, "--enable-admission-plugins="+strings.Join(plugins, ","))
	}
	return c.command(APIServer, c.bin.APIServer, flags, c.opts.APIServerFlags)
}

func (c *Cluster) controllerManagerCommand(controllers []string) command {
	f := c.files
	if len(controllers) == 0 {
		controllers = []string{"*"}
	}
	flags := []string{
		"--bind-address=" + loopback,
		fmt.Sprintf("--secure-port=%d", c.ports.manager),
		"--tls-cert-file=" + f.cert(servingName),
		"--tls-private-key-file=" + f.key(servingName),
		"--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
		"--kubeconfig=" + f.managerKubeconfig(),
		"--controllers=" + strings.Join(controllers, ","),
		"--use-service-account-credentials=true",
		"--leader-elect=true",
		"--root-ca-file=" + f.cert(caName),
		"--service-account-private-key-file=" + f.key(serviceAccountName),
		"--service-cluster-ip-range=" + serviceRange,
		// With the usual 20 and 30 it spends four seconds making its clients.
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}
	return c.command(ControllerManager, c.bin.ControllerManager, flags, c.opts.ControllerManagerFlags)
}

func (c *Cluster) command(name, path string, flags, more []string) command {
	return command{
		name: name,
		path: path,
		args: slices.Concat(flags, more),
		log:  c.files.log(name),
		home: c.files.root,

		processors: c.opts.Processors,
	}
}
