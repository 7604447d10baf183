#include "file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "base/fd.h"

namespace cgx::statistics {
namespace {

// O_EXCL: whatever stands there, a link above all, is not opened.
Fd createNew(const std::string& path) {
  return Fd(
      retryEintr([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644); }));
}

bool writeAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = retryEintr([&] { return ::write(fd, text.data(), text.size()); });
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

std::string expand(std::string_view pattern, const std::string& host, long pid, int rank) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'h': {
        std::string name = host;
        std::replace(name.begin(), name.end(), '/', '_');
        out += name;
        break;
      }
      case 'p':
        out += std::to_string(pid);
        break;
      case 'r':
        out += std::to_string(rank);
        break;
      case '%':
        out += '%';
        break;
      default:  // refused when the setting was read
        out += {'%', pattern[i]};
    }
  }
  return out;
}

Status replaceFile(const std::string& path, std::string_view text) {
  // A rename would put a file in the place of a device or a pipe; root may do that even to /dev/null.
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode) &&
      !S_ISDIR(there.st_mode))
    return Status::invalid(path + " is neither a file nor a place for one");
  const std::string beside = path + ".tmp." + std::to_string(::getpid());
  const auto failed = [&](const char* what) {
    Status why = Status::system(std::string(what) + " " + beside, errno);
    ::unlink(beside.c_str());
    return why;
  };
  Fd file = createNew(beside);
  if (!file.valid() && errno == EEXIST) {
    // Of a process that had our number and was killed here. A link is removed, not what it leads to.
    ::unlink(beside.c_str());
    file = createNew(beside);
  }
  // What stands in the way is not ours to remove.
  if (!file.valid()) return Status::system("create " + beside, errno);
  if (!writeAll(file.get(), text)) return failed("write");
  // Some file systems tell of a full disk only now.
  if (::close(file.release()) != 0 && errno != EINTR) return failed("close");
  if (std::rename(beside.c_str(), path.c_str()) != 0) return failed("rename");
  return {};
}

bool takeRequest(const std::string& path) noexcept {
  try {
    return ::unlink((path + ".request").c_str()) == 0;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace cgx::statistics
