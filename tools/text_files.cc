#include "text_files.h"

#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "base/fd.h"

namespace cgx::tool {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> matches(const std::string& pattern) {
  glob_t result{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &result) == 0)
    paths.assign(result.gl_pathv, result.gl_pathv + result.gl_pathc);
  ::globfree(&result);
  return paths;
}

void readLoaderConf(const std::string& file, const std::string& root, int depth, std::vector<std::string>& folders) {
  constexpr int kDeepest = 8;  // files that include one another
  if (depth > kDeepest) return;
  for (const std::string& line : splitAny(readText(file), "\n")) {
    const std::vector<std::string> words = splitAny(std::string_view(line).substr(0, line.find('#')), " \t,:");
    if (words.empty() || words.front() == "hwcap") continue;
    if (words.front() != "include") {
      for (const std::string& word : words) folders.push_back(root + word.substr(0, word.find('=')));
      continue;
    }
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::string pattern = words[i].front() == '/' ? root + words[i] : root + "/etc/" + words[i];
      for (const std::string& included : matches(pattern)) readLoaderConf(included, root, depth + 1, folders);
    }
  }
}

}  // namespace

std::string readText(const std::string& path, std::size_t most) {
  const Fd fd(retryEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (!fd.valid()) return {};
  std::string text(most, '\0');
  std::size_t got = 0;
  while (got < most) {
    const ssize_t n = retryEintr([&] { return ::read(fd.get(), text.data() + got, most - got); });
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  text.resize(got);
  return text;
}

std::vector<std::string> listFolder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> splitAny(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<std::string> loaderFolders(const std::string& root) {
  std::vector<std::string> folders;
  readLoaderConf(root + "/etc/ld.so.conf", root, 0, folders);
  for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"}) folders.push_back(root + folder);
  return folders;
}

std::string onPath(const std::string& command, std::string_view path) {
  if (command.empty()) return {};
  const auto runnable = [](const std::string& file) {
    std::error_code ignored;
    return fs::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
  };
  if (command.find('/') != std::string::npos) return runnable(command) ? command : std::string();
  for (const std::string& folder : splitAny(path, ":"))
    if (runnable(folder + "/" + command)) return folder + "/" + command;
  return {};
}

std::string shellQuoted(const std::string& value) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-+=:,./@%").find(c) != std::string::npos;
  };
  if (!value.empty() && std::all_of(value.begin(), value.end(), plain)) return value;
  std::string word = "'";
  for (const char c : value) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace cgx::tool
