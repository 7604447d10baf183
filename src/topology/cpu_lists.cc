// Lists of CPUs in the kernel's notation, and which of them are near a device.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include "cgx/topology.h"
#include "topology/kernel_files.h"

namespace cgx::topology {
namespace {

constexpr int kMostCpus = 1 << 16;  // a list is a file's content: "0-4000000000" is no reason to fill memory

std::string_view readNumber(std::string_view text, int& out) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  if (result.ec != std::errc() || out < 0 || out >= kMostCpus) out = -1;
  return text.substr(static_cast<std::size_t>(result.ptr - text.data()));
}

}  // namespace

std::vector<int> parseCpuList(const std::string& text) {
  std::vector<int> cpus;
  std::string_view rest = text;
  while (!rest.empty()) {
    int first = -1;
    rest = readNumber(rest, first);
    int last = first;
    if (rest.starts_with('-')) rest = readNumber(rest.substr(1), last);
    if (first < 0 || last < first) break;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (!rest.starts_with(',')) break;
    rest.remove_prefix(1);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string cpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end > i) text += "-" + std::to_string(cpus[end]);
    i = end + 1;
  }
  return text;
}

std::vector<int> cpusNear(const std::vector<std::string>& pciPaths, const std::string& root) {
  std::vector<int> near;
  for (const std::string& path : pciPaths) {
    const std::vector<int> one =
        path.empty() ? std::vector<int>() : parseCpuList(readLine(root + path + "/local_cpulist"));
    if (one.empty()) return {};
    std::vector<int> both;
    std::set_union(near.begin(), near.end(), one.begin(), one.end(), std::back_inserter(both));
    near.swap(both);
  }
  return near;
}

}  // namespace cgx::topology
