//! `plinth top`, and `plinth top --delos` if replicated services are in the program.

use plinth_commands::top::{How, run as watch_cluster};
use plinth_terminal::Outcome;
use plinth_terminal::connect::ClusterArguments;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Watch a service of `plinth delos`, by its file, and not a cluster
    #[cfg(feature = "delos")]
    #[arg(long, value_name = "SERVICE", value_parser = plinth_delos_commands::delos::parse_service)]
    delos: Option<std::path::PathBuf>,
    #[command(flatten)]
    how: How,
}

pub fn run(arguments: Arguments) -> Outcome {
    #[cfg(feature = "delos")]
    if let Some(service) = &arguments.delos {
        return delos::watch(service, &arguments);
    }
    watch_cluster(&arguments.cluster, &arguments.how)
}

#[cfg(feature = "delos")]
mod delos {
    use super::Arguments;
    use plinth_commands::top::{Seen, Watched, watch as watch_any};
    use plinth_delos_commands::delos;
    use plinth_runtime::sleep;
    use plinth_terminal::Outcome;
    use plinth_terminal::connect::block_on;
    use std::path::Path;
    use std::pin::Pin;

    struct Service(delos::Watched);

    impl Watched for Service {
        fn look(&mut self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>> {
            Box::pin(async { Ok((self.0.frame().await?, Ok(()))) })
        }
    }

    pub fn watch(service: &Path, arguments: &Arguments) -> Outcome {
        block_on(async {
            let mut watched = delos::Watched::open(service, &arguments.cluster.tls).await?;
            if arguments.how.is_once() {
                // Rates are of the time between two looks.
                watched.frame().await?;
                sleep(arguments.how.interval()).await;
            }
            watch_any(&arguments.how, &mut Service(watched)).await
        })
    }
}
