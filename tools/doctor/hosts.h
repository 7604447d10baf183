// `cgx doctor --hosts`: starts this tool on each host, hands on what they tell each other, and puts it together.
#pragma once

#include <string>
#include <vector>

#include "cgx/settings.h"
#include "cgx/status.h"
#include "doctor/compare.h"

namespace cgx::tool::doctor {

/// ssh hands its last argument to a shell on the host, so {command} is quoted once more.
inline constexpr const char* kSshTemplate = "ssh -T -o BatchMode=yes -o ConnectTimeout=10 {host} {command}";

struct HostsPlan {
  std::vector<std::string> hosts;
  std::string launcher = kSshTemplate;  // {host}; {command}: as one word; without it the words follow at the end
  std::vector<std::string> words;       // the command; "--member k" is appended
  double timeoutSeconds = 60;           // for a host to answer first
  double reachSeconds = 5;
};

/// "NAME" takes the value from `lookup`, "NAME=value" has it. Words for env(1); an error for what is no name, or is not
/// set.
Result<std::vector<std::string>> exported(const std::vector<std::string>& names, const Lookup& lookup);

/// The line for a shell that starts the command on host `index`. An error for a host's name with strange characters,
/// or a launcher without {host}.
Result<std::string> commandLine(const HostsPlan& plan, std::size_t index);

/// What the hosts found; for each that failed why, by host ("" for the others).
struct HostsOutcome {
  Gathered all;
  std::vector<std::string> failed;
};
/// Runs `lines`, one a host. Bounded by the plan's times; ends what it started.
HostsOutcome askHosts(const HostsPlan& plan, const std::vector<std::string>& lines);

}  // namespace cgx::tool::doctor
