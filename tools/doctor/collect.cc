// The facts of this host, found as NCCL would find them. Loads the plugin that a job would load; starts no
// communicator.
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cgx/topology.h"
#include "doctor/checks.h"
#include "plugin_library.h"
#include "session.h"

namespace cgx::tool::doctor {
namespace {

/// So that two hosts with different builds are told apart; not for security.
std::string hashOf(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return in ? text : "";
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
      facts->build = hashOf(library->file());
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

void readSettings(const Lookup& lookup, const std::vector<FileLine>& lines, Facts* facts) {
  const Lookup effective = [&](const char* name) -> const char* {
    if (const char* value = lookup(name); value != nullptr) return value;
    for (const FileLine& line : lines)
      if (line.name == name) return line.value.c_str();
    return nullptr;
  };
  if (const Status loaded = load(facts->settings, effective); !loaded.ok()) facts->badSettings = loaded.text();
  Settings ignored;
  (void)loadEnvironment(ignored, &facts->unknownSettings);
}

std::string hostName() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

/// Containers of one machine may share its name and boot, but not its network.
std::string identity() {
  std::error_code none;
  return topology::hostIdentity() + " " + std::filesystem::read_symlink("/proc/self/ns/net", none).string();
}

}  // namespace

Facts collect(const Lookup& lookup, const std::string& root) {
  Facts facts;
  const std::vector<FileLine> lines = fileLines(lookup, root);
  const auto find = [&](const char* name) { return variable(lookup, lines, name); };
  facts.host = hostName();
  facts.hostIdentity = identity();
  facts.plugin = find("NCCL_NET_PLUGIN");
  facts.net = find("NCCL_NET");
  facts.collnet = find("NCCL_COLLNET_ENABLE");
  facts.refCount = find("NCCL_NET_PLUGIN_REF_COUNT");
  facts.algorithm = find("NCCL_ALGO");
  facts.cudaQueues = find("CUDA_DEVICE_MAX_CONNECTIONS");
  open(&facts);
  facts.nccl = findNccl(ncclRootsFor("python3", lookup, root));
  facts.tuner = findPlugin("tuner", "ncclTunerPlugin", find("NCCL_TUNER_PLUGIN"));
  facts.env = findPlugin("env", "ncclEnvPlugin", find("NCCL_ENV_PLUGIN"));
  facts.defaultNet = findPlugin("net", "ncclNetPlugin", {});
  readSettings(lookup, lines, &facts);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) facts.openFiles = files.rlim_cur;
  facts.memory = hostMemory(root);
  facts.box = topology::box();
  for (const topology::Gpu& gpu : topology::read(root).gpus) facts.gpus.push_back(gpu.model);
  return facts;
}

}  // namespace cgx::tool::doctor
