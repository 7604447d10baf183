// `cgx info`: what is installed here and how it is set. Only looks; starts no communicator.
#pragma once

#include <string>

#include "cgx/settings.h"

namespace cgx::tool {

struct InfoOptions {
  std::string plugin;
  bool markdownSettings = false;
};

/// Prints to stdout; what cannot be found out is said in its place. Returns the exit status: 0, or 2 when the plugin
/// cannot be loaded or a setting is bad.
int info(const InfoOptions& options, const Lookup& lookup);

}  // namespace cgx::tool
