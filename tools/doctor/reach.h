// Whether hosts reach each other on the interfaces that the plugin chooses, by its own transport and handshake.
#pragma once

#include <memory>
#include <vector>

#include "doctor/card.h"

namespace cgx::tool::doctor {

/// Listens on every usable interface until it is destroyed.
class Doors {
 public:
  /// `settings` decide interfaces, ports and the time that a handshake may take. An error names what was looked for.
  static Result<Doors> open(const Settings& settings);
  const std::vector<Door>& doors() const { return doors_; }

  /// Goes to the doors of others, all at once; those that did not open. Bounded by the settings' connect time.
  std::vector<Unreached> visit(const std::vector<std::optional<Card>>& cards, const std::vector<int>& ranks);

 private:
  std::unique_ptr<transport::Transport> transport_;  // outlives the listeners
  std::vector<std::unique_ptr<transport::Listener>> listeners_;
  std::vector<Door> doors_;
};

}  // namespace cgx::tool::doctor
