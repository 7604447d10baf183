// Which NCCL libraries a program could load, and their versions, read from the files: nothing is loaded or run. Knows
// where the loader and Python look; knows nothing of what a version means.
#pragma once

#include <string>
#include <vector>

#include "cgx/nccl_version.h"
#include "cgx/settings.h"

namespace cgx::tool {

struct FoundNccl {
  std::string path;     // of the file, links resolved
  NcclVersion version;  // unknown when the file does not tell
  std::string
      origin;  // "LD_LIBRARY_PATH", "pip wheel nvidia-nccl-cu13", "inside PyTorch", "loader's path": for messages
};

/// A place to look at; it need not exist.
struct NcclRoot {
  enum class Kind : unsigned char {
    File,      // a library by name
    Folder,    // with libnccl.so.2 in it
    Packages,  // of Python, with nvidia/nccl or torch in it
  };
  Kind kind;
  std::string path;
  std::string origin;  // what FoundNccl says; packages say more
};

/// Where a program finds NCCL, first come first: what is preloaded; what Python packages bring, since PyTorch,
/// TensorFlow and JAX name it by path; LD_LIBRARY_PATH; the loader's folders. `command` is a program as a shell would
/// take it (on PATH; a script counts as its interpreter), and tells which Python; any other command stands for that of
/// `python3`. `root` is put before the system's absolute paths: "" on a real host.
std::vector<NcclRoot> ncclRootsFor(const std::string& command, const Lookup& lookup, const std::string& root = "");

/// Every NCCL there is, each file once, in the order of the roots.
std::vector<FoundNccl> findNccl(const std::vector<NcclRoot>& roots);

/// The version that a file says of itself ("NCCL version 2.21.5+cuda12.4" among its constants). Any file will do: what
/// is no ELF file, or has no such text, is unknown.
NcclVersion ncclVersionOfFile(const std::string& path);

}  // namespace cgx::tool
