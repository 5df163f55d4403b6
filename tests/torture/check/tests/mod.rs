//! Small histories made by hand: for each promise one that keeps it and one that breaks it.

mod deliveries;
mod known_bugs;
mod numbers;
mod publishes;
mod servers;
mod settles;
mod story;
mod waiting;
