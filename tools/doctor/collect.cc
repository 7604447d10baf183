// The facts of this host, found as NCCL would find them. Loads the plugin that a job would load; starts no
// communicator.
#include <dlfcn.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>

#include "doctor/checks.h"
#include "plugin_library.h"
#include "session.h"

namespace cgx::tool::doctor {
namespace {

/// The value in a file of NAME=value lines, as NCCL reads it: the first counts, since later ones do not overwrite.
bool inFile(const std::string& file, const std::string& name, std::string* value) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + "=")) {
      *value = line.substr(name.size() + 1);
      return true;
    }
  return false;
}

/// The environment wins; then NCCL's own files in its order.
Variable variable(const Lookup& lookup, const std::string& root, const char* name) {
  if (const char* value = lookup(name); value != nullptr) return {value, "environment"};
  std::vector<std::string> files;
  if (const char* named = lookup("NCCL_CONF_FILE"); named != nullptr && *named != '\0') {
    files.emplace_back(named);
  } else if (const char* home = lookup("HOME"); home != nullptr) {
    files.push_back(std::string(home) + "/.nccl.conf");
  }
  files.push_back(root + "/etc/nccl.conf");
  for (const std::string& file : files)
    if (std::string value; inFile(file, name, &value)) return {value, file};
  return {};
}

/// What NCCL tries for a name: the name itself, then the pattern. A comma list: its first entry that opens.
void open(Facts* facts) {
  std::string rest = facts->plugin.value;
  while (!rest.empty() && facts->opened.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string word = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    for (const std::string& name : {word, "libnccl-net-" + word + ".so"}) {
      if (name.empty()) continue;
      Result<PluginLibrary> library = PluginLibrary::open(name);
      if (!library.ok()) {
        if (facts->openError.empty()) facts->openError = name + ": " + library.status().text();
        continue;
      }
      facts->opened = library->path();
      facts->ours = library->counters() != nullptr && library->net() != nullptr && library->collNet() != nullptr;
      if (!facts->ours) return;
      const ncclNet_v12_t& net = *library->net();
      void* context = nullptr;
      ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      if (const ncclResult_t result = net.init(&context, 0, &config, pluginLogger(), nullptr); result != ncclSuccess) {
        facts->initError = "none: the plugin's init returned " + resultText(result);
        return;
      }
      int count = 0;
      (void)net.devices(&count);
      for (int device = 0; device < count; ++device) {
        ncclNetProperties_v12_t properties{};
        if (net.getProperties(device, &properties) == ncclSuccess)
          facts->devices.push_back(std::string(properties.name) + ", " + std::to_string(properties.speed) + " Mb/s");
      }
      (void)net.finalize(context);
      return;
    }
  }
}

/// As NCCL from 2.28.7 looks for it: what NCCL_ENV_PLUGIN says, as a file or a word, else the default name.
bool envPlugin(const Lookup& lookup) {
  const char* named = lookup("NCCL_ENV_PLUGIN");
  const std::string word = named == nullptr ? "" : named;
  for (const std::string& name : word.empty() ? std::vector<std::string>{"libnccl-env.so"}
                                              : std::vector<std::string>{word, "libnccl-env-" + word + ".so"}) {
    void* library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) continue;
    const bool ours = ::dlsym(library, "ncclEnvPlugin_v1") != nullptr && ::dlsym(library, "cgxCounters") != nullptr;
    ::dlclose(library);
    return ours;
  }
  return false;
}

bool foreignDefault() {
  void* library = ::dlopen("libnccl-net.so", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return false;
  const bool foreign = ::dlsym(library, "cgxCounters") == nullptr;
  ::dlclose(library);
  return foreign;
}

}  // namespace

Facts collect(const Lookup& lookup, const std::string& root) {
  Facts facts;
  facts.plugin = variable(lookup, root, "NCCL_NET_PLUGIN");
  facts.collnet = variable(lookup, root, "NCCL_COLLNET_ENABLE");
  facts.refCount = variable(lookup, root, "NCCL_NET_PLUGIN_REF_COUNT");
  facts.algorithm = variable(lookup, root, "NCCL_ALGO");
  facts.cudaQueues = variable(lookup, root, "CUDA_DEVICE_MAX_CONNECTIONS");
  open(&facts);
  facts.nccl = findNccl(ncclRootsFor("python3", lookup, root));
  facts.envPlugin = envPlugin(lookup);
  facts.foreignDefault = foreignDefault();
  Settings settings;
  if (const Status loaded = loadEnvironment(settings, &facts.unknownSettings); !loaded.ok())
    facts.badSettings = loaded.text();
  facts.compressing = settings.bits <= 8 && settings.mode != Mode::Off;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) facts.openFiles = files.rlim_cur;
  return facts;
}

int run(const Options& options, const Lookup& lookup) {
  constexpr int kCannotWrite = 2;
  setPluginLog(0, false);
  const std::vector<Check> checks = diagnose(collect(lookup));
  std::fputs(text(checks).c_str(), stdout);
  if (!options.json.empty()) {
    std::ofstream out(options.json);
    out << json(checks);
    out.close();
    if (!out) {
      std::fprintf(stderr, "cgx doctor: cannot write %s\n", options.json.c_str());
      return kCannotWrite;
    }
  }
  for (const Check& check : checks)
    if (check.verdict == Verdict::Problem) return 1;
  return 0;
}

}  // namespace cgx::tool::doctor
