#include "nccl_finder.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "elf_text.h"
#include "python_folders.h"
#include "text_files.h"

namespace cgx::tool {
namespace {

namespace fs = std::filesystem;
using Kind = NcclRoot::Kind;

constexpr std::string_view kBanner = "NCCL version ";  // what NCCL prints with NCCL_DEBUG=VERSION, since 2.0

bool isFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

void add(std::vector<FoundNccl>& found, const fs::path& path, NcclVersion version, const std::string& origin) {
  std::error_code ignored;
  const fs::path real = fs::canonical(path, ignored);
  const std::string text = (real.empty() ? path : real).string();
  const auto same = [&](const FoundNccl& other) { return other.path == text; };
  if (std::none_of(found.begin(), found.end(), same)) found.push_back({text, version, origin});
}

void addFile(std::vector<FoundNccl>& found, const fs::path& path, const std::string& origin) {
  if (isFile(path)) add(found, path, ncclVersionOfFile(path.string()), origin);
}

void addFolder(std::vector<FoundNccl>& found, const fs::path& folder, const std::string& origin) {
  for (const char* name : {"libnccl.so.2", "libnccl.so"}) addFile(found, folder / name, origin);
}

/// Name and version of the wheel whose record is beside the package: nvidia_nccl_cu13-2.28.9.dist-info.
struct Wheel {
  std::string name = "nvidia-nccl";
  NcclVersion version;
};

Wheel ncclWheel(const fs::path& packages) {
  Wheel wheel;
  for (const std::string& folder : listFolder(packages.string())) {
    if (!folder.starts_with("nvidia_nccl_cu") || !folder.ends_with(".dist-info")) continue;
    const std::size_t dash = folder.find('-');
    wheel.name = folder.substr(0, dash);
    std::replace(wheel.name.begin(), wheel.name.end(), '_', '-');
    wheel.version = NcclVersion::parse(std::string_view(folder).substr(dash + 1)).value_or(NcclVersion{});
  }
  return wheel;
}

void addPackages(std::vector<FoundNccl>& found, const fs::path& packages) {
  const fs::path library = packages / "nvidia/nccl/lib/libnccl.so.2";
  if (isFile(library)) {
    const Wheel wheel = ncclWheel(packages);
    const NcclVersion own = ncclVersionOfFile(library.string());
    add(found, library, own.known() ? own : wheel.version, "pip wheel " + wheel.name);
    return;
  }
  const fs::path torch = packages / "torch/lib";
  if (isFile(torch / "libnccl.so.2")) return addFolder(found, torch, "PyTorch's own");
  // Older and self-built ones are linked with NCCL's static library.
  const NcclVersion inside = ncclVersionOfFile((torch / "libtorch_cuda.so").string());
  if (inside.known()) add(found, torch / "libtorch_cuda.so", inside, "inside PyTorch");
}

void append(std::vector<NcclRoot>& roots, Kind kind, std::string_view list, std::string_view separators,
            const std::string& origin) {
  for (const std::string& path : splitAny(list, separators)) roots.push_back({kind, path, origin});
}

std::string valueOf(const Lookup& lookup, const char* name) {
  const char* value = lookup(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

NcclVersion ncclVersionOfFile(const std::string& path) {
  NcclVersion version;
  searchElfConstants(path, [&](std::string_view text) {
    for (std::size_t at = text.find(kBanner); at != text.npos; at = text.find(kBanner, at + 1)) {
      const std::string_view number = text.substr(at + kBanner.size());
      // Cut off at the end of a stretch: the next one has the whole of it. "%d" and the like are other messages.
      if (number.find_first_not_of("0123456789.") == number.npos) continue;
      if (const std::optional<NcclVersion> read = NcclVersion::parse(number)) version = *read;
      if (version.known()) return true;
    }
    return false;
  });
  return version;
}

std::vector<NcclRoot> ncclRootsFor(const std::string& command, const Lookup& lookup, const std::string& root) {
  std::vector<NcclRoot> roots;
  append(roots, Kind::File, valueOf(lookup, "LD_PRELOAD"), ": ", "LD_PRELOAD");
  const PythonFolders python = pythonFoldersFor(command, lookup, root);
  for (const std::string& folder : python.packages) roots.push_back({Kind::Packages, folder, "Python package"});
  append(roots, Kind::Folder, valueOf(lookup, "LD_LIBRARY_PATH"), ":;", "LD_LIBRARY_PATH");
  for (const std::string& folder : python.libraries) roots.push_back({Kind::Folder, folder, "Python's environment"});
  for (const std::string& folder : loaderFolders(root)) roots.push_back({Kind::Folder, folder, "loader's path"});
  return roots;
}

std::vector<FoundNccl> findNccl(const std::vector<NcclRoot>& roots) {
  std::vector<FoundNccl> found;
  for (const NcclRoot& root : roots) {
    switch (root.kind) {
      case Kind::File:
        if (fs::path(root.path).filename().string().starts_with("libnccl.so")) addFile(found, root.path, root.origin);
        break;
      case Kind::Folder:
        addFolder(found, root.path, root.origin);
        break;
      case Kind::Packages:
        addPackages(found, root.path);
        break;
    }
  }
  return found;
}

}  // namespace cgx::tool
