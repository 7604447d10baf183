// Plots as SVG for a page whose style sheet has the classes (html.cc). Pure: numbers in, text out; nothing here reads a
// clock or a locale.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cgx::tool::chart {

/// As text or attribute of HTML and XML. Bytes that are not printable ASCII become question marks.
std::string escaped(std::string_view text);

using Format = std::string (*)(double value);
/// 1.5 ms, 20 s, 3.2 min.
std::string secondsText(double seconds);
/// 1.5 GB.
std::string bytesText(double bytes);
/// Three significant digits.
std::string plainText(double value);

struct Axis {
  double from = 0;
  double to = 1;
  bool decades = false;  // logarithmic
  std::vector<std::pair<double, std::string>> ticks;
};
/// From 0 to a round number from `highest` on.
Axis axisTo(double highest, Format format);
/// From 0 to exactly `seconds`.
Axis clockAxis(double seconds);
/// Whole decades that hold both; NaN or 0: none.
Axis decadesOf(double lowest, double highest, Format format);
/// `names` at 0, 1, 2 …, as many of them as have room.
Axis namesAxis(const std::vector<std::string>& names);

/// NaN: a gap.
struct Curve {
  std::string name;
  std::string style;  // class
  std::vector<double> values;
};
struct Plot {
  std::string title;
  Axis x;
  Axis y;
  Format format = plainText;  // for hints
  std::vector<double> at;     // x of the values
  std::vector<double> low;    // a band; none if empty
  std::vector<double> high;
  std::vector<Curve> curves;
};
std::string lines(const Plot& plot);
/// The one curve as columns from 0; `at` is 0, 1, 2 …
std::string columns(const Plot& plot);

struct Bar {
  std::string name;
  std::vector<double> parts;
};
/// Lying bars of stacked parts; styles[k] is the class of part k.
std::string bars(const std::string& title, const std::vector<Bar>& bars, const std::vector<Curve>& parts,
                 Format format);

}  // namespace cgx::tool::chart
