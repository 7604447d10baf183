// Which folders a Python imports from, found without running it. Knows the layout of installations and environments.
#pragma once

#include <string>
#include <vector>

#include "cgx/settings.h"

namespace cgx::tool {

struct PythonFolders {
  std::vector<std::string> packages;   // in the order of sys.path
  std::vector<std::string> libraries;  // the environment's lib, where conda has shared libraries
};

/// The interpreter that `command` is or names in its first line, else that of `python3`; nothing without one.
std::string pythonOf(const std::string& command, const Lookup& lookup);

/// `root` is put before the system's absolute paths.
PythonFolders pythonFoldersFor(const std::string& command, const Lookup& lookup, const std::string& root);

}  // namespace cgx::tool
