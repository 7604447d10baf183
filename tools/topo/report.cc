// What `cgx topo` prints and writes.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "topo/topo.h"

namespace cgx::tool::topo {
namespace {

using Row = std::vector<std::string>;

/// Columns as wide as their longest cell; the last one is not filled up.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(widths[i] - row[i].size() + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

std::string orDash(const std::string& text) { return text.empty() ? "-" : text; }
std::string nodeText(int node) { return node < 0 ? "-" : std::to_string(node); }

std::vector<int> cpusOf(const std::string& pciPath, const Facts& facts) {
  return topology::cpusNear({pciPath}, facts.root);
}
std::string cpuText(const std::vector<int>& cpus) { return orDash(topology::cpuListText(cpus)); }

bool isUsed(const topology::Nic& nic, const Facts& facts) {
  return std::find(facts.used.begin(), facts.used.end(), nic.name) != facts.used.end();
}

std::string nodes(const Facts& facts) {
  std::vector<Row> rows{{"NUMA node", "CPUs"}};
  for (const topology::Node& node : facts.topology.nodes) rows.push_back({std::to_string(node.id), cpuText(node.cpus)});
  return table(rows);
}

std::string nics(const Facts& facts) {
  std::vector<Row> rows{{"interface", "Mb/s", "NUMA node", "CPUs", "PCI path"}};
  for (const topology::Nic& nic : facts.topology.nics)
    rows.push_back({nic.name + (isUsed(nic, facts) ? "*" : ""), nic.speedMbps > 0 ? std::to_string(nic.speedMbps) : "-",
                    nodeText(nic.numaNode), cpuText(cpusOf(nic.pciPath, facts)),
                    nic.pciPath.empty() ? "no PCI device" : nic.pciPath});
  const std::string note = !facts.noneUsed.empty() ? "None can be used: " + facts.noneUsed + ".\n"
                           : facts.root.empty()
                               ? "* used by the plugin.\n"
                               : "* taken to be used: a copied tree does not tell which ones are up.\n";
  return table(rows) + note;
}

std::string linksText(const activation::Box& box) {
  if (!box.known) return "NVLink and peer access between GPUs: not known, as libnvidia-ml was not asked.\n";
  return std::string("NVLink: ") + (box.nvlink ? "yes" : "no") +
         "; peer access over PCIe: " + (box.p2p ? "yes" : "no") + ".\n";
}

std::string gpus(const Facts& facts) {
  if (facts.topology.gpus.empty()) return "No NVIDIA GPU found.\n";
  std::vector<Row> rows{{"GPU", "bus id", "NUMA node", "CPUs", "model"}};
  for (std::size_t i = 0; i < facts.topology.gpus.size(); ++i) {
    const topology::Gpu& gpu = facts.topology.gpus[i];
    rows.push_back(
        {std::to_string(i), gpu.busId, nodeText(gpu.numaNode), cpuText(cpusOf(gpu.pciPath, facts)), orDash(gpu.model)});
  }
  return table(rows) + linksText(facts.box);
}

const char* meaning(const std::string& distance) {
  if (distance == "PIX") return "one PCIe switch";
  if (distance == "PXB") return "several PCIe switches";
  if (distance == "PHB") return "the CPU's PCIe host bridge";
  if (distance == "NODE") return "two host bridges of a NUMA node (PHB in NCCL_NET_GDR_LEVEL)";
  if (distance == "SYS") return "the link between NUMA nodes";
  return "no PCI device: NCCL puts it at the first CPU";
}

std::string distances(const Facts& facts) {
  if (facts.topology.gpus.empty() || facts.topology.nics.empty()) return {};
  std::vector<Row> rows{{"distance"}};
  for (std::size_t i = 0; i < facts.topology.gpus.size(); ++i) rows[0].push_back("GPU " + std::to_string(i));
  std::set<std::string> seen;
  for (const topology::Nic& nic : facts.topology.nics) {
    rows.push_back({nic.name});
    for (const topology::Gpu& gpu : facts.topology.gpus) {
      rows.back().push_back(distanceText(nic, gpu));
      seen.insert(rows.back().back());
    }
  }
  std::string out = "\n" + table(rows);
  for (const std::string& word : seen) out += word + ": " + meaning(word) + ".\n";
  return out;
}

std::string threads(const Facts& facts) {
  const std::string allowed =
      "CPUs allowed " + std::string(facts.root.empty() ? "here" : "there") + ": " + cpuText(facts.allowed) + "\n";
  return allowed + "Threads of the plugin: " +
         (facts.kept.empty() ? "on any of them (" : "kept to " + cpuText(facts.kept) + " (") + whyKept(facts) + ").\n";
}

nlohmann::ordered_json jsonOf(const topology::Nic& nic, const Facts& facts) {
  nlohmann::ordered_json one;
  one["name"] = nic.name;
  one["used"] = isUsed(nic, facts);
  one["pci_path"] = nic.pciPath;
  one["numa_node"] = nic.numaNode;
  one["cpus"] = cpusOf(nic.pciPath, facts);
  one["speed_mbps"] = nic.speedMbps;
  one["distances"] = nlohmann::ordered_json::array();
  for (const topology::Gpu& gpu : facts.topology.gpus) one["distances"].push_back(distanceText(nic, gpu));
  return one;
}

nlohmann::ordered_json jsonOf(const topology::Gpu& gpu, const Facts& facts) {
  nlohmann::ordered_json one;
  one["bus_id"] = gpu.busId;
  one["pci_path"] = gpu.pciPath;
  one["numa_node"] = gpu.numaNode;
  one["cpus"] = cpusOf(gpu.pciPath, facts);
  one["model"] = gpu.model;
  return one;
}

}  // namespace

std::string distanceText(const topology::Nic& nic, const topology::Gpu& gpu) {
  return nic.pciPath.empty() ? "-" : topology::name(topology::between(nic, gpu));
}

std::string text(const Facts& facts) {
  return nodes(facts) + "\n" + nics(facts) + "\n" + gpus(facts) + distances(facts) + "\n" + threads(facts);
}

std::string json(const Facts& facts) {
  using Json = nlohmann::ordered_json;
  Json whole;
  whole["nodes"] = Json::array();
  for (const topology::Node& node : facts.topology.nodes)
    whole["nodes"].push_back(Json{{"id", node.id}, {"cpus", node.cpus}});
  whole["interfaces"] = Json::array();
  for (const topology::Nic& nic : facts.topology.nics) whole["interfaces"].push_back(jsonOf(nic, facts));
  whole["gpus"] = Json::array();
  for (const topology::Gpu& gpu : facts.topology.gpus) whole["gpus"].push_back(jsonOf(gpu, facts));
  whole["nvlink"] = facts.box.known ? Json(facts.box.nvlink) : Json(nullptr);
  whole["peer_access"] = facts.box.known ? Json(facts.box.p2p) : Json(nullptr);
  whole["threads"] = Json{{"allowed", facts.allowed}, {"kept_to", facts.kept}, {"why", whyKept(facts)}};
  // A model's or interface's name may be no UTF-8.
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cgx::tool::topo
