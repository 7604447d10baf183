#include "info.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cgx/codec.h"
#include "cgx/collective.h"
#include "plugin_library.h"
#include "session.h"
#include "sizes.h"

namespace cgx::tool {
namespace {

constexpr int kBad = 2;

void printLine(const char* key, const std::string& value) { std::printf("%-12s %s\n", key, value.c_str()); }

std::string versionList(const std::vector<int>& versions) {
  std::string text;
  for (const int version : versions) text.append(text.empty() ? "v" : " v").append(std::to_string(version));
  return text.empty() ? "none" : text;
}

/// As NCCL sees them.
void printDevices(const ncclNet_v12_t& net) {
  void* context = nullptr;
  ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
  if (const ncclResult_t result = net.init(&context, 0, &config, pluginLogger(), nullptr); result != ncclSuccess)
    return printLine("interfaces", "none: the plugin's init returned " + resultText(result));
  int count = 0;
  if (net.devices(&count) != ncclSuccess || count < 1) printLine("interfaces", "none that can be used");
  for (int device = 0; device < count; ++device) {
    ncclNetProperties_v12_t properties{};
    if (net.getProperties(device, &properties) != ncclSuccess) continue;
    printLine(device == 0 ? "interfaces" : "",
              std::string(properties.name) + ", " + std::to_string(properties.speed) + " Mb/s, " +
                  (properties.pciPath == nullptr ? "no PCI device" : properties.pciPath));
  }
  (void)net.finalize(context);
}

bool printPlugin(const std::string& path) {
  Result<PluginLibrary> library = PluginLibrary::open(path);
  if (!library.ok()) {
    printLine("plugin", library.status().text());
    return false;
  }
  printLine("plugin", library->path());
  printLine("net ABI", versionList(library->versions("ncclNetPlugin_v")));
  printLine("collnet ABI", versionList(library->versions("ncclCollNetPlugin_v")));
  printLine("tuner ABI", versionList(library->versions("ncclTunerPlugin_v")));
  if (library->net() != nullptr) printDevices(*library->net());
  return true;
}

void printCodec(const Settings& settings) {
  std::string names;
  for (const codec::Kernels* kernels : codec::targets()) names.append(names.empty() ? "" : " ").append(kernels->name);
  const Result<const codec::Kernels*> chosen = codec::select(settings.simd);
  printLine("codec", names + "; chosen: " + (chosen.ok() ? std::string(chosen.value()->name) : chosen.status().text()));
}

void printStaging(const Settings& settings) {
  std::string text;
  for (const int ranks : {2, 4, 8, 16, 64})
    text.append(text.empty() ? "" : ", ")
        .append(std::to_string(ranks))
        .append(" ranks ")
        .append(sizeText(collective::stagingBytes(settings, ranks)));
  printLine("staging", text + " (for each communicator)");
}

void printSettings(const Settings& settings, const Lookup& lookup) {
  const std::vector<SettingRow> rows = describe(settings, lookup);
  std::size_t nameWidth = 0;
  std::size_t valueWidth = 0;
  for (const SettingRow& row : rows) {
    nameWidth = std::max(nameWidth, row.name.size());
    valueWidth = std::max(valueWidth, row.value.size());
  }
  std::printf("\n%-*s %-*s origin\n", static_cast<int>(nameWidth), "setting", static_cast<int>(valueWidth), "value");
  for (const SettingRow& row : rows)
    std::printf("%-*s %-*s %s\n", static_cast<int>(nameWidth), row.name.c_str(), static_cast<int>(valueWidth),
                row.value.c_str(), row.origin.c_str());
}

}  // namespace

int info(const InfoOptions& options, const Lookup& lookup) {
  if (options.markdownSettings) {
    std::fputs(settingsMarkdown().c_str(), stdout);
    return 0;
  }
  setPluginLog("cgx info", -1, false);
  printLine("cgx", CGX_VERSION);
  const bool plugin = printPlugin(options.plugin);
  Settings settings;
  std::vector<std::string> unknown;
  const Status loaded = loadEnvironment(settings, &unknown);
  printCodec(settings);
  printStaging(settings);
  printSettings(settings, lookup);
  for (const std::string& name : unknown) std::printf("\nnot a setting: %s", name.c_str());
  if (!unknown.empty()) std::printf("\n");
  if (!loaded.ok()) std::printf("\nbad setting, so these are the defaults: %s\n", loaded.text().c_str());
  return plugin && loaded.ok() ? 0 : kBad;
}

}  // namespace cgx::tool
