#include "base/setting_forms.h"

#include <algorithm>

namespace cgx::forms {
namespace {

constexpr std::size_t kMaxInterfaceName = 15;  // IFNAMSIZ - 1

bool isInterfaceName(std::string_view name) {
  return name.size() <= kMaxInterfaceName && std::none_of(name.begin(), name.end(), [](char c) {
           return (c > 0 && c <= ' ') || c == '\x7f' || c == '/' || c == '^' || c == '=';
         });
}

}  // namespace

bool Interfaces::read(std::string_view text, std::string& out) const {
  std::string_view rest = text;
  if (rest.starts_with('^')) rest.remove_prefix(1);
  if (rest.starts_with('=')) rest.remove_prefix(1);
  bool any = false;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const std::size_t colon = std::min(item.find(':'), item.size());
    if (!isInterfaceName(item.substr(0, colon))) return false;
    int port = 0;
    if (colon < item.size() && !readNumber(item.substr(colon + 1), port)) return false;
    any |= colon > 0;  // NCCL skips empty items, "eth0," is common
  }
  if (any) out = text;
  return any;
}

bool FilePattern::read(std::string_view text, std::string& out) const {
  constexpr std::size_t kLongest = 1000;  // host name and numbers still fit into PATH_MAX
  if (!text.starts_with('/') || text.ends_with('/') || text.size() > kLongest) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((text[i] >= 0 && text[i] < ' ') || text[i] == '\x7f') return false;
    if (text[i] != '%') continue;
    if (++i == text.size() || std::string_view("hpr%").find(text[i]) == std::string_view::npos) return false;
  }
  out = text;
  return true;
}

bool PortRange::read(std::string_view text, std::string& out) const {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return false;
  int first = 0;
  int last = 0;
  if (!readNumber(text.substr(0, dash), first) || !readNumber(text.substr(dash + 1), last)) return false;
  if (first < 1 || first > last || last > 65535) return false;
  out = text;
  return true;
}

}  // namespace cgx::forms
