#include "support/nccl_names.h"

#include <strings.h>

#include <climits>
#include <cstring>
#include <string_view>

namespace cgx::test {
namespace {

using Names = std::vector<std::string>;

constexpr NcclVersion kTunerIsNew{2, 19, 0};
constexpr NcclVersion kNameAsItIs{2, 21, 0};
constexpr NcclVersion kStatic{2, 22, 0};
constexpr NcclVersion kOneOpener{2, 26, 0};  // plugin_open.cc
constexpr NcclVersion kLists{2, 27, 0};
constexpr NcclVersion kPathsAgain{2, 27, 5};
constexpr NcclVersion kNone{2, 28, 0};
constexpr NcclVersion kEnv{2, 28, 7};
constexpr std::size_t kMostPlugins = 14;  // of a list; NCCL_NET_MAX_PLUGINS - 2

bool isLibraryName(std::string_view name) { return name.starts_with("lib") && name.ends_with(".so"); }

/// Room of the buffer that a name is printed into, its zero included.
std::size_t roomFor(NcclVersion nccl) {
  if (nccl < kNameAsItIs) return 128;
  return nccl < kOneOpener ? PATH_MAX : 255;
}

/// As it comes out of that buffer.
std::string printed(const std::string& name, NcclVersion nccl) { return name.substr(0, roomFor(nccl) - 1); }

/// How one word becomes names.
Names namesOf(const std::string& prefix, const std::string& wholeWord, NcclVersion nccl) {
  const std::string word = printed(wholeWord, nccl);
  const std::string pattern = printed(prefix + "-" + wholeWord + ".so", nccl);
  if (word.empty()) return {prefix + ".so"};
  if (nccl < kNameAsItIs) return {pattern};
  if (nccl < kLists) return {word, pattern};
  if (nccl < kPathsAgain)
    return {isLibraryName(wholeWord) && wholeWord.size() >= std::strlen("libX.so") ? word : pattern};
  if (isLibraryName(wholeWord) || wholeWord.find('/') != std::string::npos) return {word};
  return {word, pattern};
}

std::string valueOf(const char* name, const Lookup& environment) {
  const char* const value = environment(name);
  return value == nullptr ? "" : value;
}

bool isNone(const std::string& value) { return ::strcasecmp(value.c_str(), "none") == 0; }

void add(Names& all, const Names& more) { all.insert(all.end(), more.begin(), more.end()); }

Names netNames(NcclVersion nccl, const Lookup& environment) {
  const std::string prefix = "libnccl-net";
  const char* const value = environment("NCCL_NET_PLUGIN");
  if (nccl < kLists || value == nullptr) return namesOf(prefix, valueOf("NCCL_NET_PLUGIN", environment), nccl);
  Names names;
  if (nccl >= kNone && isNone(value)) return names;
  std::size_t taken = 0;
  std::string_view rest = value;
  while (!rest.empty() && taken < kMostPlugins) {  // strtok: empty words do not count
    const std::size_t comma = rest.find(',');
    const std::string word(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    if (word.empty() || word.size() + 1 > roomFor(nccl)) continue;
    add(names, namesOf(prefix, word, nccl));
    ++taken;
  }
  return names;
}

Names tunerNames(NcclVersion nccl, const Lookup& environment) {
  const char* const set = environment("NCCL_TUNER_PLUGIN");
  const std::string value = set == nullptr ? "" : set;
  if (nccl < kTunerIsNew) return {};
  if (nccl < kNameAsItIs) return set == nullptr ? Names{} : Names{value};
  if (nccl >= kNone && isNone(value)) return {};
  Names names = namesOf("libnccl-tuner", value, nccl);
  add(names, netNames(nccl, environment));
  return names;
}

Names envNames(NcclVersion nccl, const Lookup& environment) {
  const std::string value = valueOf("NCCL_ENV_PLUGIN", environment);
  if (nccl < kEnv || isNone(value)) return {};
  return namesOf("libnccl-env", value, nccl);
}

Names allNames(PluginKind kind, NcclVersion nccl, const Lookup& environment) {
  switch (kind) {
    case PluginKind::Net:
      return netNames(nccl, environment);
    case PluginKind::Tuner:
      return tunerNames(nccl, environment);
    case PluginKind::Env:
      return envNames(nccl, environment);
  }
  return {};
}

}  // namespace

std::vector<std::string> namesTried(PluginKind kind, NcclVersion nccl, const Lookup& environment) {
  Names names = allNames(kind, nccl, environment);
  for (std::string& name : names) {
    // Any beginning of the word will do, as NCCL compares as many letters as the name has.
    if (nccl >= kStatic && !name.empty() && ::strncasecmp(name.c_str(), "STATIC_PLUGIN", name.size()) == 0)
      name.clear();
  }
  return names;
}

const std::vector<NcclVersion>& ncclReleases() {
  static const std::vector<NcclVersion> releases{
      {2, 18, 1}, {2, 18, 3}, {2, 18, 5}, {2, 18, 6}, {2, 19, 1}, {2, 19, 3}, {2, 19, 4}, {2, 20, 3},
      {2, 20, 5}, {2, 21, 5}, {2, 22, 3}, {2, 23, 4}, {2, 24, 3}, {2, 25, 1}, {2, 26, 2}, {2, 26, 3},
      {2, 26, 5}, {2, 26, 6}, {2, 27, 3}, {2, 27, 5}, {2, 27, 6}, {2, 27, 7}, {2, 28, 3}, {2, 28, 7},
      {2, 28, 9}, {2, 29, 2}, {2, 29, 3}, {2, 29, 7}, {2, 30, 3}, {2, 30, 4}, {2, 30, 7}};
  return releases;
}

}  // namespace cgx::test
