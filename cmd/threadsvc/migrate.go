package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/threadsvc/threadsvc/migrations"
	"github.com/threadsvc/threadsvc/store"
)

var (
	errNoDatabaseURL = errors.New("no database: give --database-url or set " + envPrefix + "DATABASE_URL")
	errNoSteps       = errors.New("taking revisions back deletes what they made room for: say how many with --steps")
)

func newMigrate() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Change or show the revision of the database schema",
		Long: "Change or show the revision of the schema in the database of --database-url, which must reach\n" +
			"Postgres itself, not a pooler. 'threadsvc serve' migrates up by itself unless told otherwise." + envHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	url := c.PersistentFlags().String("database-url", "", "Postgres connection `URL` (required)")
	c.AddCommand(migrateUp(url), migrateDown(url), migrateStatus(url))
	return c
}

// migration is a command on the database at the URL.
func migration(url *string, use, short string, do func(context.Context, *cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnv(c); err != nil {
				return err
			}
			if *url == "" {
				return &usageError{c.CommandPath(), errNoDatabaseURL}
			}
			ctx, cancel := context.WithTimeout(c.Context(), migrateTimeout)
			defer cancel()
			err := do(ctx, c)
			if err == nil {
				err = printRevision(ctx, c, *url)
			}
			if err != nil && !errors.Is(err, errUsage) {
				err = &databaseError{describeURL(*url), err}
			}
			return err
		},
	}
}

func migrateUp(url *string) *cobra.Command {
	return migration(url, "up", "Bring the schema up to this program's revision", func(ctx context.Context, _ *cobra.Command) error {
		return store.Migrate(ctx, *url)
	})
}

func migrateDown(url *string) *cobra.Command {
	var steps int
	c := migration(url, "down", "Take the newest revisions back, with the data in them", func(ctx context.Context, c *cobra.Command) error {
		if steps < 1 {
			return &usageError{c.CommandPath(), errNoSteps}
		}
		return takeBack(ctx, *url, steps)
	})
	c.Flags().IntVar(&steps, "steps", 0, "how many revisions to take back, a `number` (required, only as a flag)")
	_ = c.Flags().SetAnnotation("steps", noEnv, []string{"true"}) // the flag exists
	return c
}

func takeBack(ctx context.Context, url string, steps int) error {
	revision, _, err := store.SchemaVersion(ctx, url)
	if err != nil {
		return err
	}
	if steps > int(revision) {
		return fmt.Errorf("cannot take back %d revisions: the schema has %d", steps, revision)
	}
	return store.MigrateDown(ctx, url, steps)
}

func migrateStatus(url *string) *cobra.Command {
	return migration(url, "status", "Show the schema's revision and this program's", func(context.Context, *cobra.Command) error {
		return nil
	})
}

// printRevision tells where the schema stands.
func printRevision(ctx context.Context, c *cobra.Command, url string) error {
	revision, dirty, err := store.SchemaVersion(ctx, url)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "schema revision %d of %d: %s\n", revision, migrations.Latest(), standing(revision, dirty))
	return err
}

func standing(revision uint, dirty bool) string {
	switch latest := migrations.Latest(); {
	case dirty:
		return "a migration was left half done; repair the schema by hand and set schema_migrations"
	case revision == 0:
		return "empty; run 'threadsvc migrate up'"
	case revision < latest:
		return "behind; run 'threadsvc migrate up'"
	case revision > latest:
		return "newer than this program, which can use it"
	}
	return "up to date"
}
