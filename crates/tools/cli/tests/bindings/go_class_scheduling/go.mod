module plinth/class_scheduling

go 1.22

require github.com/apple/foundationdb/bindings/go v0.0.0-20260629183922-51e1c42eb9a8
