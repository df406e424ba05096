# Runs a node as process 1 of PID and mount namespaces of its own, in which no mount
# is seen elsewhere. When containerd or the kubelet ends, so does all of it, unless
# containerd is to be started again.
set -eu
dir=$1 hidden=$2 cgroup=$3 name=$4 kubeconfig=$5 image_filesystem=$6 kubelet_flags=$7
shift 7
containerd=$1 containerd_log=$2 kubelet=$3 kubelet_log=$4
PATH=${containerd%/*}:$PATH # has the shim, and ctr
export PATH

mount --make-rprivate /
mount -t proc proc /proc

# containerd, runc, the CNI plugins and the kubelet have these paths built in, and must
# neither find there what belongs to the machine's own, nor leave anything behind.
for folder in $hidden; do
	mkdir -p "$folder"
	mount -t tmpfs node "$folder"
done

mkdir -p "$dir/root"
if [ "$image_filesystem" != 0 ]; then
	mount -t tmpfs -o "size=$image_filesystem" images "$dir/root"
fi

# What the kubelet and the network plugin would set for the whole machine, they set in copies.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
	kernel/keys/root_maxkeys kernel/keys/root_maxbytes net/ipv4/ip_forward; do
	copy=$dir/sys/$setting
	mkdir -p "${copy%/*}"
	cat "/proc/sys/$setting" >"$copy"
	mount --bind "$copy" "/proc/sys/$setting"
done

# The kubelet wants the cgroup of all its Pods to be there: in version 2 there is one, in
# version 1 one for each controller.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
		echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || true # the kubelet says what it misses
	done
	mkdir "/sys/fs/cgroup/$cgroup"
else
	for controller in /sys/fs/cgroup/*/; do mkdir "$controller$cgroup"; done
fi

trap 'exit 1' TERM
cd "$dir"
{
	"$containerd" --config containerd.toml >>"$containerd_log" 2>&1 || true
	while [ -e restart ]; do
		rm restart
		"$containerd" --config containerd.toml >>"$containerd_log" 2>&1 || true
	done
	kill -TERM 1
} &
until ctr --address "$dir/containerd.sock" version >/dev/null 2>&1; do sleep 0.05; done
[ -z "$kubelet" ] || { "$kubelet" --config kubelet.yaml --kubeconfig "$kubeconfig" --hostname-override "$name" \
	--root-dir "$dir/kubelet" --cert-dir "$dir/kubelet-pki" $kubelet_flags >>"$kubelet_log" 2>&1 || true; kill -TERM 1; } &
while :; do wait; done
