// A partial topology for NCCL_TOPO_FILE. The least that NCCL 2.28.9 was seen to take: it fills in what is not said.
#include <algorithm>

#include "cgx/topology.h"

namespace cgx::topology {

std::string gdrXml(const Topology& topology) {
  std::vector<int> nodes;
  for (const Gpu& gpu : topology.gpus) nodes.push_back(gpu.numaNode);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  std::string text = "<system version=\"1\">\n";
  for (const int node : nodes) {
    text += "  <cpu numaid=\"" + std::to_string(node) + "\">\n";
    for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
      if (topology.gpus[i].numaNode != node) continue;
      text += "    <pci busid=\"" + topology.gpus[i].busId + "\">\n      <gpu dev=\"" + std::to_string(i) +
              "\" gdr=\"1\"/>\n    </pci>\n";
    }
    text += "  </cpu>\n";
  }
  return text + "</system>\n";
}

}  // namespace cgx::topology
