// What owned equipment costs a year: straight line, or capital recovery (which adds the interest
// on the money tied up). Amounts are in the caller's currency; rates are fractions a year.
#pragma once

namespace tare::econ {

struct Asset {
  double price = 0;
  double residual = 0;  // what it sells for at the end
  double life_years = 3;
};

// (price - residual) / life.
double StraightLinePerYear(const Asset& asset);

// The level year-end payment with the same present value as buying today and selling at the end:
// (price - residual (1 + r)^-n) * CapitalRecoveryFactor(r, n). At rate 0 it is the straight line.
double CapitalRecoveryPerYear(const Asset& asset, double rate_per_year);

// Written-down value after `years` under the straight line; never below the residual.
double BookValue(const Asset& asset, double years);

}  // namespace tare::econ
