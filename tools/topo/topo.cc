#include "topo/topo.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>

#include "base/cpus.h"
#include "base/worker_pool.h"
#include "cgx/transport.h"
#include "statistics/file.h"

namespace cgx::tool::topo {
namespace {

constexpr int kNoGpu = 1;
constexpr int kBad = 2;

constexpr const char* kFooter = R"(
--gdr prints a partial topology that tells NCCL to hand over GPU memory itself, also where the driver says that this cannot be
(GeForce): for NCCL_TOPO_FILE, in jobs whose network is this plugin. NCCL fills in the rest. Do not use it with InfiniBand.)";

void useDevicesOfThisHost(Facts* facts, std::vector<std::string>* pciPaths) {
  const auto transport = transport::createSocket(facts->settings);
  if (!transport.ok()) {
    facts->noneUsed = transport.status().text();
    return;
  }
  for (const transport::Device& device : transport.value()->devices()) {
    facts->used.push_back(device.name);
    pciPaths->push_back(device.pciPath);
  }
}

/// A tree does not tell which interfaces are up and have an address.
void useDevicesOfATree(Facts* facts, std::vector<std::string>* pciPaths) {
  for (const topology::Nic& nic : facts->topology.nics) {
    if (nic.pciPath.empty()) continue;
    facts->used.push_back(nic.name);
    pciPaths->push_back(nic.pciPath);
  }
  if (facts->used.empty()) facts->noneUsed = "no interface is a PCI device";
}

std::vector<int> allCpus(const topology::Topology& topology) {
  std::vector<int> all;
  for (const topology::Node& node : topology.nodes) all.insert(all.end(), node.cpus.begin(), node.cpus.end());
  std::sort(all.begin(), all.end());
  return all;
}

/// Nothing that is not a plain file is replaced: /dev/null would be gone.
Status writeFile(const std::string& path, const std::string& content) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    return Status::invalid(path + " is there and is no plain file; name another, or leave it out to print");
  return statistics::replaceFile(path, content);
}

int failed(const Status& why) {
  std::fprintf(stderr, "cgx topo: %s\n", why.text().c_str());
  return kBad;
}

int gdr(const Options& options, const Facts& facts) {
  if (facts.topology.gpus.empty()) {
    std::fprintf(stderr, "cgx topo: no NVIDIA GPU found in %s/sys/bus/pci/devices, so there is nothing to mark%s\n",
                 facts.root.c_str(), facts.root.empty() ? "; run it on a host of the job" : "");
    return kNoGpu;
  }
  const std::string xml = topology::gdrXml(facts.topology);
  if (options.output.empty()) {
    std::fputs(xml.c_str(), stdout);
    return 0;
  }
  if (const Status written = writeFile(options.output, xml); written.failed()) return failed(written);
  std::fprintf(stderr, "cgx topo: %zu GPU(s) marked; start every rank of this host with NCCL_TOPO_FILE=%s\n",
               facts.topology.gpus.size(), options.output.c_str());
  return 0;
}

}  // namespace

void addFlags(CLI::App& command, Options* options) {
  command.footer(kFooter);
  command.add_option("--root", options->root, "Read sys and proc below this folder, a copy of another host's")
      ->type_name("DIR");
  CLI::Option* json = command.add_option("--json", options->json, "Also write it to this file")->type_name("FILE");
  CLI::Option* gdr =
      command.add_flag("--gdr", options->gdr, "Print a topology for NCCL_TOPO_FILE instead")->excludes(json);
  command.add_option("-o,--output", options->output, "File for that topology")->type_name("FILE")->needs(gdr);
}

Result<Facts> collect(const Options& options, const Lookup& lookup) {
  Facts facts;
  facts.root = options.root;
  while (facts.root.ends_with('/')) facts.root.pop_back();  // "/" is this host
  if (!std::filesystem::is_directory(facts.root + "/sys"))
    return Status::invalid(facts.root + "/sys is no folder; --root takes one that holds a host's sys and proc");
  CGX_TRY(load(facts.settings, lookup));
  facts.topology = topology::read(facts.root);
  std::vector<std::string> pciPaths;
  if (facts.root.empty()) {
    useDevicesOfThisHost(&facts, &pciPaths);
    facts.box = topology::box();
    facts.allowed = affinityCpus();
  } else {
    useDevicesOfATree(&facts, &pciPaths);
    facts.box.gpus = static_cast<int>(facts.topology.gpus.size());
    facts.box.known = facts.box.gpus == 0;
    facts.allowed = allCpus(facts.topology);
  }
  if (facts.settings.affinity == Affinity::Near) facts.settings.nearCpus = topology::cpusNear(pciPaths, facts.root);
  facts.kept = cpusToKeepTo(facts.settings, facts.allowed);
  return facts;
}

std::string whyKept(const Facts& facts) {
  const Settings& settings = facts.settings;
  if (settings.affinity == Affinity::Inherit) return "CGX_AFFINITY=inherit";
  if (!facts.noneUsed.empty()) return "no interface is used";
  if (settings.nearCpus.empty()) return "an interface in use is no PCI device or the kernel does not say where it is";
  std::vector<int> both;
  std::set_intersection(facts.allowed.begin(), facts.allowed.end(), settings.nearCpus.begin(), settings.nearCpus.end(),
                        std::back_inserter(both));
  if (both.empty()) return "none of them is near the interfaces in use";
  if (both.size() == facts.allowed.size()) return "all of them are near the interfaces in use";
  if (!facts.kept.empty()) return "near the interfaces in use";
  const int busy = busyThreads(settings, static_cast<int>(facts.allowed.size()));
  return "only " + topology::cpuListText(both) + " are near the interfaces in use, too few for " +
         std::to_string(settings.localRanks) + (settings.localRanks == 1 ? " rank" : " ranks") + " with " +
         std::to_string(busy) + " busy threads each";
}

int run(const Options& options, const Lookup& lookup) {
  const Result<Facts> facts = collect(options, lookup);
  if (!facts.ok()) return failed(facts.status());
  if (options.gdr) return gdr(options, facts.value());
  std::fputs(text(facts.value()).c_str(), stdout);
  if (options.json.empty()) return 0;
  const Status written = writeFile(options.json, json(facts.value()));
  return written.ok() ? 0 : failed(written);
}

}  // namespace cgx::tool::topo
