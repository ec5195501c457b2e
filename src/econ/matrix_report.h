// A two-way sensitivity matrix for a terminal and for a page. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace tare::econ {

struct MatrixTable {
  std::string rows_name, columns_name;     // the two inputs
  std::vector<std::string> rows, columns;  // their values, with units
  std::vector<std::vector<double>> cells;  // [row][column]
  bool higher_is_better = false;           // a net present value; else a cost
};

// One line a row, indented by two; empty when there are no cells.
std::string MatrixText(const MatrixTable& table);
// A table whose cells are shaded from best to worst; below zero in another colour when higher is
// better.
std::string MatrixHtml(const MatrixTable& table);

}  // namespace tare::econ
