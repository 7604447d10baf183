#include "base/cpus.h"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string_view>

#include "base/fd.h"

namespace cgx {
namespace {

/// The whole of a small file of the kernel's; empty when it cannot be read.
std::string slurp(const std::string& path) {
  const Fd fd(retryEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  std::string text;
  if (!fd.valid()) return text;
  std::array<char, 4096> chunk;
  for (;;) {
    const ssize_t got = retryEintr([&] { return ::read(fd.get(), chunk.data(), chunk.size()); });
    if (got <= 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

/// The number at the start of `text` after blanks; "max", -1 and nonsense are 0: no limit.
double leadingNumber(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  long value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && value > 0 ? static_cast<double>(value) : 0;
}

double ratio(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }

/// Version 2: "quota period" in microseconds, quota may be "max".
double limitV2(const std::string& group) {
  const std::string text = slurp(group + "/cpu.max");
  const std::size_t blank = std::min(text.find(' '), text.size());
  return ratio(leadingNumber(text), leadingNumber(std::string_view(text).substr(blank)));
}

double limitV1(const std::string& group) {
  return ratio(leadingNumber(slurp(group + "/cpu.cfs_quota_us")), leadingNumber(slurp(group + "/cpu.cfs_period_us")));
}

double smaller(double a, double b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

/// The smallest limit of `path` and its parents below `mount`. A container often sees the host's path but mounts only
/// its own group, so the mount itself is always asked.
template <class Limit>
double smallestUpwards(const std::string& mount, std::string path, Limit limit) {
  double least = limit(mount);
  while (path.size() > 1) {
    least = smaller(least, limit(mount + path));
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return least;
}

bool lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const std::size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == wanted) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

/// A kernel's mask of any length.
class CpuMask {
 public:
  explicit CpuMask(std::size_t room) : room_(room), set_(CPU_ALLOC(room), [](cpu_set_t* set) { CPU_FREE(set); }) {
    if (set_ != nullptr) CPU_ZERO_S(bytes(), set_.get());
  }
  cpu_set_t* set() const noexcept { return set_.get(); }
  std::size_t bytes() const noexcept { return CPU_ALLOC_SIZE(room_); }
  std::vector<int> list() const {
    std::vector<int> cpus;
    for (std::size_t cpu = 0; cpu < bytes() * 8; ++cpu)
      if (CPU_ISSET_S(cpu, bytes(), set_.get())) cpus.push_back(static_cast<int>(cpu));
    return cpus;
  }

 private:
  std::size_t room_;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set_;
};

}  // namespace

double cgroupCpus(const std::string& membership, const std::string& root) {
  double least = 0;
  std::string_view rest = membership;
  while (!rest.empty()) {  // lines of "number:controllers:path"
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      least = smaller(least, smallestUpwards(root, path, limitV2));
      least = smaller(least, smallestUpwards(root + "/unified", path, limitV2));  // mounted beside version 1
    } else if (lists(controllers, "cpu")) {
      least = smaller(least, smallestUpwards(root + "/" + std::string(controllers), path, limitV1));
      least = smaller(least, smallestUpwards(root + "/cpu", path, limitV1));
    }
  }
  return least;
}

std::vector<int> affinityCpus() {
  // The kernel refuses a mask shorter than its own; hosts with more than 1024 CPUs exist.
  for (std::size_t room = CPU_SETSIZE; room <= (1U << 20); room *= 2) {
    const CpuMask mask(room);
    if (mask.set() == nullptr) return {};
    if (::sched_getaffinity(0, mask.bytes(), mask.set()) == 0) return mask.list();
    if (errno != EINVAL) return {};
  }
  return {};
}

bool keepTo(pthread_t thread, const std::vector<int>& cpus) noexcept {
  if (cpus.empty()) return true;
  const CpuMask mask(static_cast<std::size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1);
  if (mask.set() == nullptr) return false;
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), mask.bytes(), mask.set());
  return ::pthread_setaffinity_np(thread, mask.bytes(), mask.set()) == 0;
}

int allowedCpus() {
  const int cpus = std::max(1, static_cast<int>(affinityCpus().size()));
  const double quota = cgroupCpus(slurp("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota == 0 ? cpus : std::max(1, std::min(cpus, static_cast<int>(std::min(quota, 1e6))));
}

}  // namespace cgx
