#include "topology/kernel_files.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/fd.h"

namespace cgx::topology {

std::string readStart(const std::string& path) {
  const Fd file(retryEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  std::array<char, 4096> bytes;
  const ssize_t n = file.valid() ? retryEintr([&] { return ::read(file.get(), bytes.data(), bytes.size()); }) : 0;
  return std::string(bytes.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
}

std::string readLine(const std::string& path) {
  const std::string text = readStart(path);
  return text.substr(0, text.find('\n'));
}

int readInt(const std::string& path, int otherwise) {
  const std::string line = readLine(path);
  int value = 0;
  const auto result = std::from_chars(line.data(), line.data() + line.size(), value);
  return result.ec == std::errc() ? value : otherwise;
}

std::vector<std::string> listFolder(const std::string& path) {
  std::vector<std::string> names;
  struct Close {
    void operator()(DIR* folder) const noexcept { ::closedir(folder); }
  };
  const std::unique_ptr<DIR, Close> folder(::opendir(path.c_str()));
  if (!folder) return names;
  while (const dirent* entry = ::readdir(folder.get()))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string realPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : std::string();
}

std::vector<std::string_view> partsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) parts.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

bool isPciFunction(std::string_view name) {
  constexpr std::string_view kForm = "hhhh:hh:hh.h";  // some hosts have domains of five digits: taken off the front
  if (name.size() < kForm.size() || name.size() > kForm.size() + 4) return false;
  const std::size_t extra = name.size() - kForm.size();
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char form = i < extra ? 'h' : kForm[i - extra];
    if (form == 'h' ? std::isxdigit(static_cast<unsigned char>(name[i])) == 0 : name[i] != form) return false;
  }
  return true;
}

}  // namespace cgx::topology
