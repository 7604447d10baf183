// How many CPUs this process may use: affinity and cgroup quota. Knows no threads of ours.
#pragma once

#include <string>

namespace cgx {

/// CPUs' worth of time that cgroups grant, 0 where nothing limits it. The smallest limit from the process's group up to
/// the root counts. `membership` is the text of /proc/self/cgroup, `root` where cgroups are mounted; versions 1 and 2.
/// What cannot be read does not limit.
double cgroupCpus(const std::string& membership, const std::string& root);

/// At least 1: CPUs in the calling thread's affinity mask, cut to the whole CPUs of the quota.
int allowedCpus();

}  // namespace cgx
