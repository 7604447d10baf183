// Which CPUs this process may use, and how many: affinity and cgroup quota. Knows no threads of ours.
#pragma once

#include <pthread.h>

#include <string>
#include <vector>

namespace cgx {

/// CPUs' worth of time that cgroups grant, 0 where nothing limits it. The smallest limit from the process's group up to
/// the root counts. `membership` is the text of /proc/self/cgroup, `root` where cgroups are mounted; versions 1 and 2.
/// What cannot be read does not limit.
double cgroupCpus(const std::string& membership, const std::string& root);

/// The calling thread's affinity mask, ascending; empty when the kernel does not tell.
std::vector<int> affinityCpus();

/// Keeps a running thread to `cpus`; none: changes nothing. False: the kernel refuses (the CPUs may have been unplugged
/// or taken from the process meanwhile), and the thread stays where it was.
bool keepTo(pthread_t thread, const std::vector<int>& cpus) noexcept;

/// At least 1: CPUs in the calling thread's affinity mask, cut to the whole CPUs of the quota.
int allowedCpus();

}  // namespace cgx
