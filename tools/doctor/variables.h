// NCCL's variables as NCCL finds them: the environment, then the lines of its files. Knows no variable in particular.
#pragma once

#include <string>
#include <vector>

#include "cgx/settings.h"

namespace cgx::tool::doctor {

/// A variable and where its value comes from: "environment", "/etc/nccl.conf"; empty: not set anywhere.
struct Variable {
  std::string value;
  std::string origin;
  bool set() const { return !origin.empty(); }
};

/// A line of one of NCCL's files. NCCL makes each an environment variable of the process before it loads a plugin, so
/// CGX_* lines count, too.
struct FileLine {
  std::string name;
  std::string value;
  std::string file;
};

/// In NCCL's order: NCCL_CONF_FILE, else ~/.nccl.conf; then /etc/nccl.conf. `root` is put before /etc.
std::vector<FileLine> fileLines(const Lookup& lookup, const std::string& root);

/// The environment wins, then the first line.
Variable variable(const Lookup& lookup, const std::vector<FileLine>& lines, const std::string& name);

}  // namespace cgx::tool::doctor
