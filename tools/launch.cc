#include "launch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cgx/topology.h"
#include "plugin_library.h"
#include "text_files.h"

namespace cgx::tool {
namespace {

constexpr int kUsage = 2;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;
constexpr const char* kPlugin = "NCCL_NET_PLUGIN";
constexpr const char* kLoaderPath = "LD_LIBRARY_PATH";

constexpr const char* kFooter = R"help(
Sets what the program's NCCL needs to use the plugin and becomes the program: same process, signals, input, output and exit status.
A variable that is set already keeps its value. NCCL is looked for where the program would find it (Python packages of its
interpreter, LD_LIBRARY_PATH, the loader's folders); with several, or none, what is set suits all of them. Nothing is loaded or run.

  cgx run -- python train.py
  torchrun --nproc-per-node 8 --no-python cgx run -- python train.py
  mpirun -np 16 cgx run -- ./all_reduce_perf -b 1M -e 1G -f 2
  srun -n 16 cgx run -- python train.py
  eval "$(cgx run --print -- python)"

Exit status: the program's; 2: bad usage, a bad CGX_* setting, or no plugin; 126: the program cannot be executed; 127: not found.)help";

bool isEmpty(const char* value) { return value == nullptr || *value == '\0'; }

std::vector<NcclVersion> versionsOf(const std::vector<FoundNccl>& found) {
  std::vector<NcclVersion> versions;
  for (const FoundNccl& one : found)
    if (std::find(versions.begin(), versions.end(), one.version) == versions.end()) versions.push_back(one.version);
  if (versions.empty()) versions.emplace_back();  // unknown: what suits all
  return versions;
}

/// How the plugin is named: by path, or where an NCCL may be met that takes none by the short name, with its folder on
/// the loader's path.
void namePlugin(const LaunchFacts& facts, const std::vector<NcclVersion>& versions, LaunchPlan& plan) {
  if (std::all_of(versions.begin(), versions.end(), activation::takesAPath)) {
    plan.set.emplace_back(kPlugin, facts.library);
    return;
  }
  const std::string folder = std::filesystem::path(facts.library).parent_path();
  const char* const before = facts.lookup(kLoaderPath);
  plan.set.emplace_back(kPlugin, "cgx");
  plan.set.emplace_back(kLoaderPath, isEmpty(before) ? folder : folder + ":" + before);
}

activation::Decision decideFor(const LaunchFacts& facts, NcclVersion version, const LaunchPlan& plan) {
  activation::Facts asked;
  asked.nccl = version;
  asked.lookup = [&](const char* name) -> const char* {
    for (const auto& [set, value] : plan.set)
      if (set == name) return value.c_str();
    return facts.lookup(name);
  };
  asked.libraryPath = facts.library;
  asked.intra = facts.settings.intra;
  asked.gdr = facts.settings.gdr;
  asked.host = facts.host;
  asked.box = facts.box;
  return activation::decide(asked);
}

void addOnce(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

void follow(const activation::Decision& decision, NcclVersion version, LaunchPlan& plan) {
  for (const std::string& warning : decision.warnings) addOnce(plan.warnings, warning);
  for (const activation::Wanted& one : decision.wanted) {
    if (one.users) {
      const bool collnet = std::strcmp(one.name, "NCCL_COLLNET_ENABLE") == 0;
      const bool good = collnet ? activation::collnetOn(*one.users, version) : one.asWanted();
      if (!good && std::strcmp(one.name, "NCCL_HOSTID") != 0)
        addOnce(plan.warnings, std::string(one.name) + " is set to '" + *one.users + "' and stays so, but '" +
                                   one.value + "' " + one.why);
      continue;
    }
    const auto known =
        std::find_if(plan.set.begin(), plan.set.end(), [&](const auto& s) { return s.first == one.name; });
    if (known == plan.set.end()) plan.set.emplace_back(one.name, one.value);
  }
}

void warnOfName(const LaunchFacts& facts, NcclVersion version, LaunchPlan& plan) {
  const char* const users = facts.lookup(kPlugin);
  if (isEmpty(users) || activation::understood(users, facts.library, version)) return;
  addOnce(plan.warnings, std::string(kPlugin) + " is set to '" + users + "' and stays so, but NCCL " + version.text() +
                             " finds no plugin by it: set it to 'cgx', with the plugin's folder on the loader's path, "
                             "or leave it to cgx run");
}

std::string describe(const FoundNccl& found) {
  return "NCCL " + found.version.text() + ": " + found.path + " (" + found.origin + ")";
}

/// What launch() asks the host for.
Result<LaunchFacts> factsFor(const LaunchOptions& options, const Lookup& lookup) {
  LaunchFacts facts;
  CGX_TRY(load(facts.settings, lookup));
  facts.lookup = lookup;
  facts.library = options.plugin.empty() ? defaultPluginPath() : options.plugin;
  if (facts.library.empty()) {
    std::string looked;
    for (const std::string& place : pluginCandidates()) looked += "\n  " + place;
    return Status::invalid("no libnccl-net-cgx.so found; looked at" + looked + "\nname it with --plugin PATH");
  }
  std::error_code none;
  facts.library = std::filesystem::absolute(facts.library, none).lexically_normal().string();
  if (!std::filesystem::is_regular_file(facts.library, none))
    return Status::invalid("no such plugin: " + facts.library);
  facts.found = findNccl(ncclRootsFor(options.command.empty() ? "" : options.command.front(), lookup));
  if (facts.settings.intra == Intra::On) facts.host = topology::hostIdentity();
  facts.box = [] { return topology::box(); };
  return facts;
}

void print(const LaunchPlan& plan) {
  for (const std::string& line : plan.about) std::printf("# %s\n", line.c_str());
  for (const auto& [name, value] : plan.set) std::printf("export %s=%s\n", name.c_str(), shellQuoted(value).c_str());
}

int become(const std::vector<std::string>& command) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int why = errno;
  std::fprintf(stderr, "cgx run: cannot start %s: %s\n", words[0], std::strerror(why));
  return why == ENOENT || why == ENOTDIR ? kNotFound : kNotExecutable;
}

}  // namespace

LaunchPlan planLaunch(const LaunchFacts& facts) {
  LaunchPlan plan;
  const std::vector<NcclVersion> versions = versionsOf(facts.found);
  for (const FoundNccl& one : facts.found) plan.about.push_back(describe(one));
  if (facts.found.empty()) plan.about.emplace_back("no NCCL found: what follows suits all versions");
  if (isEmpty(facts.lookup(kPlugin))) namePlugin(facts, versions, plan);
  for (const NcclVersion version : versions) {
    const activation::Decision decision = decideFor(facts, version, plan);
    if (!decision.named) {
      plan.warnings.push_back(std::string(kPlugin) + " is set to '" + facts.lookup(kPlugin) +
                              "', which is not this plugin: nothing is set, and the program runs without it");
      return plan;
    }
    warnOfName(facts, version, plan);
    follow(decision, version, plan);
  }
  return plan;
}

void addLaunchFlags(CLI::App& command, LaunchOptions* options) {
  command.footer(kFooter);
  command.add_flag("--print", options->print,
                   "Print the variables as a shell's export lines instead; CMD may be left out");
  command.add_flag("-v,--verbose", options->verbose, "Say on stderr which NCCL was found and what is set");
  command.add_option("--plugin", options->plugin, "The plugin (default: libnccl-net-cgx.so next to this program)")
      ->type_name("PATH");
  command.add_option("CMD", options->command, "The program and its arguments, after --");
  command.positionals_at_end();
}

int launch(const LaunchOptions& options, const Lookup& lookup) {
  if (options.command.empty() && !options.print) {
    std::fprintf(stderr, "cgx run: no command given: cgx run -- CMD ARGS...\n");
    return kUsage;
  }
  const Result<LaunchFacts> facts = factsFor(options, lookup);
  if (!facts.ok()) {
    std::fprintf(stderr, "cgx run: %s\n", facts.status().text().c_str());
    return kUsage;
  }
  const LaunchPlan plan = planLaunch(facts.value());
  for (const std::string& warning : plan.warnings) std::fprintf(stderr, "cgx run: %s\n", warning.c_str());
  if (options.print) {
    print(plan);
    return 0;
  }
  if (options.verbose) {
    for (const std::string& line : plan.about) std::fprintf(stderr, "cgx run: %s\n", line.c_str());
    for (const auto& [name, value] : plan.set) std::fprintf(stderr, "cgx run: %s=%s\n", name.c_str(), value.c_str());
  }
  for (const auto& [name, value] : plan.set) ::setenv(name.c_str(), value.c_str(), 1);
  return become(options.command);
}

}  // namespace cgx::tool
