// A partial topology for NCCL_TOPO_FILE, read from NCCL's src/graph/xml.cc and topo.cc (2.18 to 2.28). It fills in what
// is not said, with three exceptions, so these are said:
//  - A device of the file stays where the file has it: without its switches a GPU would seem farther from its NIC.
//  - 2.21 to 2.26 take a NUMA node that is not in the file for one of another host, so all are in it. What is not used
//    NCCL leaves out again.
//  - A NIC without PCI device goes to the first <cpu>, which must say what it is, whether it has a GPU or not.
#include <algorithm>
#include <cctype>
#include <set>
#include <span>

#include "cgx/topology.h"
#include "topology/kernel_files.h"

namespace cgx::topology {
namespace {

struct Place {
  std::vector<std::string> way;  // bus ids, from the outermost switch to the GPU
  std::size_t gpu;               // as the driver counts
};

/// As NCCL walks: a switch is two bridges, the upper one names it; what has no two functions above it is at the CPU.
std::vector<std::string> wayTo(const Gpu& gpu) {
  const auto parts = partsOf(gpu.pciPath);
  std::vector<std::string> way{gpu.busId};
  for (std::size_t i = parts.size(); i > 2 && isPciFunction(parts[i - 2]) && isPciFunction(parts[i - 3]); i -= 2)
    way.insert(way.begin(), std::string(parts[i - 3]));
  return way;
}

/// `places` are sorted and share the way down to `depth`.
void append(std::string* text, std::span<const Place> places, std::size_t depth) {
  const std::string indent(4 + 2 * depth, ' ');
  while (!places.empty()) {
    const std::string& busId = places.front().way[depth];
    const auto end = std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.way[depth] != busId; });
    const auto here = places.first(static_cast<std::size_t>(end - places.begin()));
    *text += indent + "<pci busid=\"" + busId + "\">\n";
    if (depth + 1 == here.front().way.size())
      *text += indent + "  <gpu dev=\"" + std::to_string(here.front().gpu) + "\" gdr=\"1\"/>\n";
    else
      append(text, here, depth + 1);
    *text += indent + "</pci>\n";
    places = places.subspan(here.size());
  }
}

std::string attributes(const Processor& processor) {
  if (processor.arch.empty()) return {};
  std::string text = " arch=\"" + processor.arch + "\"";
  if (processor.vendor.empty()) return text;
  for (const char c : processor.vendor)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != ' ') return {};  // breaks the file; NCCL asks the CPU
  return text + " vendor=\"" + processor.vendor + "\" familyid=\"" + std::to_string(processor.family) +
         "\" modelid=\"" + std::to_string(processor.model) + "\"";
}

std::set<int> nodesOf(const Topology& topology) {
  std::set<int> nodes;
  for (const Node& node : topology.nodes) nodes.insert(node.id);
  for (const Nic& nic : topology.nics)
    if (!nic.pciPath.empty()) nodes.insert(nic.numaNode);
  for (const Gpu& gpu : topology.gpus) nodes.insert(gpu.numaNode);
  return nodes;
}

}  // namespace

std::string gdrXml(const Topology& topology) {
  std::string text = "<system version=\"1\">\n";
  for (const int node : nodesOf(topology)) {
    std::vector<Place> places;
    for (std::size_t i = 0; i < topology.gpus.size(); ++i)
      if (topology.gpus[i].numaNode == node) places.push_back({wayTo(topology.gpus[i]), i});
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.way < b.way; });
    text += "  <cpu numaid=\"" + std::to_string(node) + "\"" + attributes(topology.processor) + ">\n";
    append(&text, places, 0);
    text += "  </cpu>\n";
  }
  return text + "</system>\n";
}

}  // namespace cgx::topology
