// Two simulated machines: network namespaces with a network and a host name each, and a switch between them.
#pragma once

#include <cstdlib>

namespace stepladder {

/// The script machines.sh: makes the machines node01 and node02, each with a network and a host name, and a
/// switch between them and this process (host name: harness), then runs its arguments as a command.
/// node01.pid holds the id of a process on node01.
inline constexpr const char* kMakeTwoMachines = R"(set -e
rm -f node0?.pid
machine() {
  unshare --net --uts setpriv --pdeathsig KILL sh -c "hostname $1; echo \$\$ >$1.pid; exec sleep 300" &
  while [ ! -s $1.pid ]; do sleep 0.01; done
  ip link add to_$1 type veth peer name eth0 netns $(cat $1.pid)
  ip link set to_$1 master switch up
  nsenter -t $(cat $1.pid) --net sh -c "ip link set lo up; ip address add 10.99.0.$2/24 dev eth0; ip link set eth0 up"
}
hostname harness
ip link set lo up
ip link add switch type bridge
ip address add 10.99.0.1/24 dev switch
ip link set switch up
machine node01 2
machine node02 3
set +e
"$@"
status=$?
kill $(cat node01.pid node02.pid)
exit $status
)";

/// The start of a command line that runs the rest with two machines; needs machines.sh in the current folder.
inline constexpr const char* kOnTwoMachines = "unshare --user --map-root-user --net --uts sh machines.sh ";

/// Whether this system permits unprivileged namespaces and has the programs that make them.
inline bool two_machines_are_permitted() {
  static const bool are =
      std::system(
          "unshare --user --map-root-user --net --uts sh -c 'hostname x && ip link add x type bridge && "
          "unshare --net nsenter --version' >/dev/null 2>&1") == 0;
  return are;
}

}  // namespace stepladder
